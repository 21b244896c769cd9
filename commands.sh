#!/usr/bin/env bash
# The commands of the README, one a line or block, to copy from. Run whole, it does each of them in turn.
set -euo pipefail

eval-factory --version
eval-factory ls
eval-factory ls --json
eval-factory ls --tag multiple-choice
eval-factory ls --all
eval-factory ls medec
eval-factory ls helm:mmlu
eval-factory data ls
eval-factory leaderboard ls
eval-factory leaderboard run medhelm_public --model org/model --model_url http://127.0.0.1:8000/v1 --dry_run

# The embedded endpoint: no key, no network
eval-factory run_eval --run_config test_cases/quickstart.yml

# A benchmark of your own (docs/custom-benchmarks.md)
eval-factory run_eval --run_config test_cases/custom.yml

# Only look
eval-factory run_eval --run_config test_cases/test_case_nim_llama_3_1_8b_medcalc_bench.yml --dry_run

# Medical calculations
eval-factory run_eval \
  --output_dir test_cases/test_case_nim_llama_3_1_8b_medcalc_bench \
  --run_config test_cases/test_case_nim_llama_3_1_8b_medcalc_bench.yml

# Medical error detection
eval-factory run_eval \
  --output_dir test_cases/test_case_nim_llama_3_1_8b_medec \
  --run_config test_cases/test_case_nim_llama_3_1_8b_medec.yml

# Biomedical questions
eval-factory run_eval \
  --output_dir test_cases/test_case_nim_llama_3_1_8b_head_qa \
  --run_config test_cases/test_case_nim_llama_3_1_8b_head_qa.yml

# A jury of models (GPT_JUDGE_API_KEY, LLAMA_JUDGE_API_KEY and CLAUDE_JUDGE_API_KEY, or the main key for all)
eval-factory run_eval --run_config test_cases/test_case_nim_llama_3_1_8b_mtsamples_replicate.yml

# Everything as flags, no file
eval-factory run_eval --eval_type pubmed_qa --output_dir results/flags --model_url http://127.0.0.1:8000/v1 \
  --model_id org/model --model_type chat --api_key_name OPENAI_API_KEY \
  --overrides 'config.params.limit_samples=10,config.params.parallelism=8'

# Any of HELM's run specs; a jury of one's own
eval-factory run_eval --eval_type helm:mmlu:subject=anatomy --output_dir results/anatomy \
  --model_url http://127.0.0.1:8000/v1 --model_id org/model --overrides 'config.params.limit_samples=10'
eval-factory run_eval --run_config test_cases/custom_jury.yml
