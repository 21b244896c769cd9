from __future__ import annotations

from pathlib import Path
from typing import Any

from eval_factory.executors.slurm import batch_script, clean_up_name, clean_up_script, step_command

PLAIN: dict[str, Any] = {
    "account": None,
    "partition": None,
    "qos": None,
    "time": None,
    "cpus": 1,
    "mem": None,
    "gpus": None,
    "extra": [],
    "prologue": [],
    "container": None,
    "python": "/venv/bin/python",
    "tasks_at_once": 1,
}
LOG = Path("/r/logs/w1")
JOB: dict[str, Any] = {
    "resources": PLAIN,
    "argv": ("-m", "worker", "/r/plan.jsonl"),
    "name": "ef-0a1b-w1",
    "tasks": 3,
    "at_once": 1,
    "log_folder": LOG,
}

GOLDEN = """\
#!/bin/bash
#SBATCH --job-name=ef-0a1b-w1
#SBATCH --array=0-9%4
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --account=lab
#SBATCH --partition=gpu
#SBATCH --qos=long
#SBATCH --time=2:00:00
#SBATCH --mem=16G
#SBATCH --gpus=a100:2
#SBATCH --output=/r/logs/w1/%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@30
#SBATCH --export=NONE
#SBATCH --constraint=big
#SBATCH --comment=x

module load python
ulimit -n 4096
exec apptainer exec image.sif /venv/bin/python -m worker '/r/my plan.jsonl'
"""


def test_all_that_may_be_said() -> None:
    said = {
        **PLAIN,
        "account": "lab",
        "partition": "gpu",
        "qos": "long",
        "time": "2:00:00",
        "cpus": 8,
        "mem": "16G",
        "gpus": "a100:2",
        "extra": ["--constraint=big", "--comment=x"],
        "container": "apptainer exec image.sif",
        "prologue": ["module load python", "ulimit -n 4096"],
    }
    job = {
        "tasks": 10,
        "at_once": 4,
        "resources": said,
        "argv": ("-m", "worker", "/r/my plan.jsonl"),
    }
    assert batch_script(**JOB | job) == GOLDEN


def test_what_nobody_says_is_left_to_slurm() -> None:
    lines = batch_script(**JOB).splitlines()
    assert [line for line in lines if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=ef-0a1b-w1",
        "#SBATCH --array=0-2%1",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --output=/r/logs/w1/%a.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:TERM@30",
        "#SBATCH --export=NONE",
    ]
    assert lines[-1] == "exec /venv/bin/python -m worker /r/plan.jsonl"
    assert "#SBATCH --array=0-2%3\n" in batch_script(**JOB | {"at_once": 50}), (
        "no more at once than there are"
    )
    # characters of sbatch: it is still that folder
    odd = batch_script(**JOB | {"log_folder": Path("/r/50% of it's\"x")})
    assert '#SBATCH --output="/r/50%% of it\'s\\"x/%a.log"\n' in odd


CLEAN_UP = """\
#!/bin/bash
#SBATCH --job-name=ef-0a1b-w1-clean-up
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=100M
#SBATCH --time=10
#SBATCH --account=lab
#SBATCH --qos=long
#SBATCH --output=/r/logs/w1/clean-up.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --export=NONE
#SBATCH --comment=x

for ((i = 0; i < 50; i++)); do
  left=$(squeue --noheader --name=ef-0a1b-w1 --format=%T) || left=unknown
  [[ -z $left ]] && exec rm -f -- '/r/my w1.env'
  sleep 10
done
exit 1
"""


def test_the_job_that_cleans_up_asks_for_little_and_looks_before_it_deletes() -> None:
    extra = ["--comment=x", "--exclusive", "--mem-per-cpu=9G", "--mail-type=END", "--hold"]
    said = {
        **PLAIN,
        "account": "lab",
        "qos": "long",
        "time": "2:00:00",
        "cpus": 8,
        "gpus": "1",
        "extra": extra,
    }
    assert (
        clean_up_script("ef-0a1b-w1", said, log_folder=LOG, file_to_delete=Path("/r/my w1.env"))
        == CLEAN_UP
    )
    assert clean_up_name("a-w1") == "a-w1-clean-up"


def test_of_several_servers_each_has_the_resources() -> None:
    """Memory is said of a core: `--mem` is that of a node, which may have several servers."""
    said = {**PLAIN, "cpus": 3, "mem": "1G", "gpus": "a100:2"}
    lines = batch_script(**JOB | {"tasks": 1, "servers": 4, "resources": said}).splitlines()
    assert lines[3:7] == [
        "#SBATCH --ntasks=4",
        "#SBATCH --cpus-per-task=3",
        "#SBATCH --mem-per-cpu=349526K",
        "#SBATCH --gpus-per-task=a100:2",
    ]
    for mem in ("100", 100, "100m", "100MB"):
        assert "#SBATCH --mem-per-cpu=102400K" in batch_script(
            **JOB | {"servers": 2, "resources": {**PLAIN, "mem": mem}}
        )
    usual = ["srun", "--export=ALL", "--nodes=1", "--ntasks=1", "--exact", "--mem=0"]
    assert step_command(said) == [*usual, "--cpus-per-task=3", "--gpus-per-task=a100:2"]
    assert step_command(PLAIN) == [*usual, "--cpus-per-task=1"]
