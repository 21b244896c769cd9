"""Makes docs/reference/environment.md: the environment variables and their purposes.

A test finds variables that the source reads, and that the page lacks.
"""

from __future__ import annotations

from scripts.reference.page_text import page

from eval_factory.executors.process import ALLOWED_PREFIXES, ALLOWED_VARIABLES

KEYS = {
    "OPENAI_API_KEY": "The key of the evaluated model, "
    "unless `target.api_endpoint.api_key` names another variable.",
    "GPT_JUDGE_API_KEY": "The key of the default judge `gpt`; the main key where it is not set.",
    "LLAMA_JUDGE_API_KEY": "The same of `llama`.",
    "CLAUDE_JUDGE_API_KEY": "The same of `claude`.",
    "HELM_CREDENTIALS": "A file, or text, in the form of HELM's `credentials.conf`, "
    "where keys are looked for last.",
    "<SERVICE>_CLIENT_ID": "With `oauth: service`: the client's id.",
    "<SERVICE>_CLIENT_SECRET": "The client's secret.",
    "<SERVICE>_TOKEN_URL": "Where tokens come from, unless `framework.yml` knows it.",
    "<SERVICE>_SCOPE": "What tokens are for, unless `framework.yml` knows it.",
    "HF_TOKEN": "The key of the Hugging Face Hub, for data that need one.",
}
NETWORK = {
    "HTTP_PROXY": "The proxy of http:// addresses; lower case too, as the next three.",
    "HTTPS_PROXY": "Of https:// addresses.",
    "ALL_PROXY": "Of any other address.",
    "NO_PROXY": "Hosts without a proxy.",
    "SSL_CERT_FILE": "A file of certificates to trust (PEM).",
    "SSL_CERT_DIR": "A folder of certificates to trust.",
    "REQUESTS_CA_BUNDLE": "A file of certificates to trust, as other Python programs read it.",
    "CURL_CA_BUNDLE": "The same, as curl reads it.",
    "NVCF_STATUS_URL": "Where NVIDIA Cloud Functions are asked whether a request is done.",
    "OAUTHLIB_INSECURE_TRANSPORT": "1: tokens may come from an http:// address; "
    "set by itself for this machine.",
}
DATA = {
    "HF_HOME": "Where data sets of the Hugging Face Hub are kept.",
    "HF_HUB_CACHE": "Where the Hub's files are kept, if elsewhere.",
    "HF_DATASETS_CACHE": "Where prepared data sets are kept, if elsewhere.",
    "HF_MODULES_CACHE": "Where scripts of data sets are kept while a bundle is made.",
    "HF_ENDPOINT": "A mirror of the Hub.",
    "HF_HUB_OFFLINE": "1: the Hub is not asked.",
    "HF_DATASETS_OFFLINE": "1: data sets are not looked for on the Hub.",
    "NLTK_DATA": "Where nltk's files are.",
    "TIKTOKEN_CACHE_DIR": "Where tiktoken's vocabularies are.",
    "MEDICAL_DATA_ALL_FILES": "1: MTSamples scenarios read every file that they find, "
    "not the pinned list alone.",
}
PROGRAM = {
    "EVAL_FACTORY_SERVED_AT": "Where the server of a `served://` model is, "
    "for a cell that is run alone.",
    "EVAL_FACTORY_SERVER": "Set for the server that a suite starts: its processes are known by it.",
    "EVAL_FACTORY_MEDHELM": "The folder of medhelm's environment, "
    "where it is not in the user's folder of data.",
    "EVAL_FACTORY_HEIM": "The folder of the environment of HEIM's metrics, "
    "where it is not in the user's folder of data; weights lie beside it.",
    "EVAL_FACTORY_WITHOUT": "`all`, or names of patches: "
    "those that make helm-run quicker are left out.",
    "GITHUB_STEP_SUMMARY": "The file of a job's summary, which GitHub sets: `gate` adds its table.",
    "MLFLOW_DISABLE_TELEMETRY": "MLflow's telemetry is off unless this is set.",
    "SLURM_CONF": "With executor slurm: Slurm's own configuration, if it is not where Slurm looks.",
    "SLURM_CLUSTERS": "With executor slurm: the cluster that is asked, of several.",
    "SLURM_JWT": "With executor slurm: Slurm's own token, where it signs in so; "
    "only Slurm's commands get it.",
    "SLURM_ARRAY_TASK_ID": "Set by Slurm: which cell a task does.",
    "PYTHONUTF8": "Set to 1 for helm-run, whatever it is: every file is UTF-8.",
    "PYDANTIC_DISABLE_PLUGINS": "True unless set: pydantic looks for no plug-ins.",
}
BETWEEN_PROCESSES = {"EVAL_FACTORY_SETTINGS"}
"""The variables in which eval-factory passes settings to helm-run; no user sets them."""
INTRODUCTION = """\
None is needed for the embedded endpoint. Settings belong into the run config; variables hold keys
(you choose their names: `api_key: MY_KEY`) and what other programs on the machine share."""


def variables_page() -> str:
    """Return the text of docs/reference/environment.md."""
    lines = [INTRODUCTION]
    sections = {"Keys and tokens": KEYS, "Network": NETWORK, "Data": DATA, "The program": PROGRAM}
    for title, variables in sections.items():
        lines += ["", f"## {title}", ""]
        lines += [f"- `{name}`: {about}" for name, about in variables.items()]
    passed = ", ".join(f"`{name}`" for name in sorted(ALLOWED_VARIABLES) if name.isupper())
    own_variables = ", ".join(f"`{name}`" for name in sorted(BETWEEN_PROCESSES))
    prefixes = ", ".join(f"`{prefix}...`" for prefix in ALLOWED_PREFIXES)
    lines += [
        "",
        "## What helm-run is given",
        "",
        (
            "Nothing but the keys that the run names and these: "
            f"{passed}, {prefixes}, and the proxies in lower case."
        ),
        f"Of its own eval-factory adds {own_variables}; set none of them.",
    ]
    return page("Environment variables", lines)
