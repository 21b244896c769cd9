"""What eval-factory adds to HELM: importing this registers it, and looks at no environment."""

from __future__ import annotations

import eval_factory.demo.benchmark  # registers sample_medical_qa
import eval_factory.helm_plugin.choice_order_expander  # registers shuffle_choices
import eval_factory.helm_plugin.choice_scenario  # registers the published multiple-choice benchmarks
import eval_factory.helm_plugin.conversation_scenario  # registers the run spec of conversations
import eval_factory.helm_plugin.rubric.rubric_scenario  # noqa: F401 - registers the run specs of rubric benchmarks
