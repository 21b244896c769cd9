"""`config` and `target` of NVIDIA's programs, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.config.foreign_configs.run_sections import RunSections, settle_system_prompt
from eval_factory.config.foreign_keys import ADAPTER, ONLY
from eval_factory.tasks.framework import load_framework


def sections(name: str = "medec", prefix: str = "", **renamed: str) -> RunSections:
    task = load_framework().task(name)
    assert task is not None
    return RunSections(task, prefix, renamed)


def of_params(params: Any, name: str = "medec") -> tuple[Any, list[str]]:
    layer = sections(name)
    return layer.translated({"config": {"params": params}})["config"].get("params"), told(layer)


def of_endpoint(endpoint: Any, **renamed: str) -> tuple[Any, list[str]]:
    layer = sections(**renamed)
    return layer.translated({"target": {"api_endpoint": endpoint}})["target"].get("api_endpoint"), told(layer)


def of_adapter(adapter: Any) -> tuple[Any, list[str]]:
    endpoint, findings = of_endpoint({"adapter_config": adapter})
    return endpoint["adapter_config"], [line.removeprefix("target.api_endpoint.adapter_config.") for line in findings]


def told(layer: RunSections) -> list[str]:
    return [finding.text for finding in layer.findings]


def test_what_is_the_same_here_is_kept() -> None:
    layer: dict[str, dict[str, Any]] = {
        "config": {
            "type": "medec",
            "output_dir": "out",
            "params": {"limit_samples": 5, "parallelism": 2, "temperature": 0.5, "task": "medec", "extra": {"max_length": 9}},
        },
        "target": {"api_endpoint": {"url": "http://h/v1", "model_id": "m", "type": "completions"}},
    }  # fmt: skip
    mine = sections()
    params = {"limit_samples": 5, "parallelism": 2, "temperature": 0.5, "extra": {"max_length": 9}}
    assert mine.translated(layer) == {"config": {**layer["config"], "params": params}, "target": layer["target"]}
    assert told(mine) == []


def test_each_key_that_is_not_kept_is_told_with_where_it_stands() -> None:
    mine = sections(prefix="here.")
    layer = {"config": {"supported_endpoint_types": ["chat"], "nonsense": 1}, "target": {"model": "x"}}
    assert mine.translated(layer) == {"config": {}, "target": {}}
    assert told(mine) == [
        "here.config.supported_endpoint_types: changes no result: it is always done the same way here; leave it out",
        "here.config.nonsense: has no counterpart; leave it out",
        "here.target.model: has no counterpart; leave it out",
    ]


@pytest.mark.parametrize("layer", [{}, {"config": None, "target": None}, {"config": {"params": None}}])
def test_a_null_says_nothing(layer: dict[str, Any]) -> None:
    mine = sections()
    assert mine.translated(layer) == {"config": {}, "target": {}}
    assert told(mine) == []


def test_a_section_that_is_no_mapping_is_told() -> None:
    mine = sections()
    assert mine.translated({"config": ["x"], "target": {"api_endpoint": "x"}})["target"] == {"api_endpoint": {}}
    assert told(mine) == [
        "config: is no mapping of keys to values; write it as one",
        "target.api_endpoint: is no mapping of keys to values; write it as one",
    ]


@pytest.mark.parametrize(("given", "kept"), [(10.0, 10), (10, 10), (0.5, 0.5), ("${N}", "${N}")])
def test_a_whole_number_of_samples_is_one(given: Any, kept: Any) -> None:
    params, findings = of_params({"limit_samples": given})
    assert (params["limit_samples"], type(params["limit_samples"])) == (kept, type(kept))
    assert findings == []


@pytest.mark.parametrize(("name", "task", "said"), [
    ("med_dialog_icliniq", "med_dialog", []), ("med_dialog_icliniq", "med_dialog_icliniq", []), ("medec", None, []),
    ("medec", "head_qa", ["config.params.task: is another task than medec; name the task that is meant"]),
])  # fmt: skip
def test_the_task_may_be_named_a_second_time(name: str, task: str | None, said: list[str]) -> None:
    assert of_params({"task": task}, name) == ({}, said)


def test_what_a_scenario_does_not_read_is_told() -> None:
    extra, findings = of_params({"extra": {"subject": "x", "data_path": "/d", "num_train_trials": 3}})
    assert extra == {"extra": {"num_train_trials": 3}}
    assert findings == [
        "config.params.extra.subject: medec has no subject; leave it out",
        "config.params.extra.data_path: medec has no data_path; leave it out",
    ]
    kept = {"extra": {"subject": "guo_readmission", "data_path": "/d"}}
    assert of_params(kept, "ehrshot") == (kept, [])


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("disable_cache", "answers are always kept, so that none is paid for twice; '--fresh' forgets them before a run"),
        ("num_fewshot", "HELM's benchmark says how many examples a prompt holds; run it as helm:NAME:max_train_instances=N"),
        ("n_samples", "each prompt is asked once; run it into several folders, and compare them"),
        ("judge", "judges have another form; write them under config.params.extra.judges (docs/judges.md)"),
        ("num_output_token", "has no counterpart; leave it out, did you mean 'num_output_tokens'?"),
    ],
)  # fmt: skip
def test_what_other_harnesses_read_is_told_with_what_to_do(key: str, said: str) -> None:
    params, (finding,) = of_params({"extra": {key: {"a": 1}}})
    assert params == {"extra": {}}
    assert finding.startswith(f"config.params.extra.{key}: {said}")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"api_key_name": "A_KEY"}, "A_KEY"),
        ({"api_key": "A_KEY"}, "A_KEY"),
        ({"api_key": "OTHER_KEY", "api_key_name": "A_KEY"}, "A_KEY"),
        ({"api_key_name": "C_KEY"}, "MY_KEY"),
        ({"api_key": "${C_KEY}"}, "MY_KEY"),
        ({"api_key": "${A_KEY}"}, "A_KEY"),
        ({"api_key_name": "${NAME_OF_IT:-A_KEY}"}, "${NAME_OF_IT:-A_KEY}"),
        ({"api_key_name": "${A_KEY}"}, "${A_KEY}"),
    ],
)
def test_the_name_of_the_keys_variable(given: dict[str, str], kept: str) -> None:
    assert of_endpoint(given, C_KEY="MY_KEY") == ({"api_key": kept}, [])


@pytest.mark.parametrize("mark", ["<YOUR_API_KEY_NAME>", "${API_KEY_NAME}"])
def test_a_mark_for_a_name_is_none(mark: str) -> None:
    endpoint, (finding,) = of_endpoint({"api_key_name": mark})
    assert endpoint == {}
    assert finding == "target.api_endpoint.api_key_name: is a mark for a name; write the NAME of the key's variable"


def test_variables_that_hold_keys_are_known() -> None:
    mine = sections(C_KEY="MY_KEY")
    config = {"params": {"extra": {"gpt_judge_api_key": "C_KEY", "llama_judge_api_key": 5}}}
    layer = {"config": config, "target": {"api_endpoint": {"api_key": "A_KEY"}}}
    found = mine.translated(layer)["config"]["params"]["extra"]
    assert found == {"gpt_judge_api_key": "MY_KEY", "llama_judge_api_key": 5}
    assert mine.keys == {"C_KEY", "A_KEY"}


@pytest.mark.parametrize(("given", "kept"), [("chat", "chat"), ("completions", "completions"), ("vlm", "chat")])
def test_the_types_of_endpoints_that_there_are(given: str, kept: str) -> None:
    assert of_endpoint({"type": given}) == ({"type": kept}, [])


def test_another_type_is_told() -> None:
    endpoint, findings = of_endpoint({"type": "embedding", "stream": True})
    assert endpoint == {}
    assert [line.partition(":")[0] for line in findings] == ["target.api_endpoint.stream", "target.api_endpoint.type"]


def test_what_the_adapter_does_here_too_is_kept_and_the_rest_told() -> None:
    kept = {"params_to_add": {"a": 1}, "use_nvcf": True, "end_reasoning_token": "</t>", "use_system_prompt": True}
    given = {
        **kept,
        "use_caching": True,
        "process_reasoning_traces": True,
        "use_reasoning": False,
        "headers_to_add": {"a": "b"},
    }
    adapter, findings = of_adapter(given)
    assert adapter == kept
    assert findings == [
        "use_caching: changes no result: it is always done the same way here; leave it out",
        f"use_reasoning: would change the results and is not followed: {ONLY[f'{ADAPTER}.use_reasoning'][1]}; leave it out",
        "headers_to_add: requests have no headers of the user's; give a key as api_key, or a token as oauth",
    ]  # fmt: skip


def test_interceptors_become_the_adapters_keys() -> None:
    interceptors = [
        {"name": "payload_modifier", "config": {"params_to_add": {"a": 1}, "params_to_remove": ["b"], "headers_to_add": {}}},
        {"name": "system_message", "config": {"system_message": "Be brief.", "strategy": None}},
        {"name": "reasoning", "config": {"start_reasoning_token": "<r>", "end_reasoning_token": "</r>"}},
        {"name": "nvcf"},
        {"name": "no_such_one", "enabled": False},
        {"name": "endpoint", "config": None},
        "caching",
        {"name": "turn_counter"},
    ]  # fmt: skip
    adapter, findings = of_adapter({"interceptors": interceptors})
    assert adapter == {
        "params_to_add": {"a": 1}, "params_to_remove": ["b"], "custom_system_prompt": "Be brief.", "use_system_prompt": True,
        "start_reasoning_token": "<r>", "end_reasoning_token": "</r>", "use_nvcf": True,
    }  # fmt: skip
    assert findings == [
        "interceptors[0].config.headers_to_add: has no counterpart; leave it out",
        "interceptors[5]: endpoint: changes no result: it is always done the same way here; leave it out",
        "interceptors[6]: caching: changes no result: it is always done the same way here; leave it out",
        "interceptors[7]: there is no interceptor turn_counter here; leave it out",
    ]
    assert of_adapter({"interceptors": "x"}) == ({}, [])


@pytest.mark.parametrize(
    ("adapter", "left", "is_told"),
    [
        ({"custom_system_prompt": "x", "use_system_prompt": True}, {"custom_system_prompt": "x"}, False),
        ({"custom_system_prompt": "x", "use_system_prompt": False}, {}, True),
        ({"custom_system_prompt": "x"}, {}, True),
        ({"use_system_prompt": True, "use_nvcf": True}, {"use_nvcf": True}, False),
        ({}, {}, False),
    ],
)
def test_a_system_prompt_is_sent_only_where_it_was(
    adapter: dict[str, Any], left: dict[str, Any], is_told: bool
) -> None:
    finding = settle_system_prompt({"target": {"api_endpoint": {"adapter_config": adapter}}})
    assert adapter == left
    assert (finding is not None) is is_told
    if finding is not None:
        assert finding.text.startswith("target.api_endpoint.adapter_config.custom_system_prompt: is not sent where")


def test_a_run_without_an_endpoint_has_no_prompt() -> None:
    assert settle_system_prompt({"target": {}}) is None
