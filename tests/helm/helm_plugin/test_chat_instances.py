"""What an instance of a conversation is made of."""

from __future__ import annotations

from eval_factory.helm_plugin.conversation_scenario import chat_adapter, input_of, right_replies


def test_turns_are_kept_and_readable_as_one_text() -> None:
    turns = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"})
    found = input_of(turns)
    assert found.messages == list(turns)
    assert found.messages[0] is not turns[0]
    assert found.text == "system: Be brief.\n\nuser: Hello?"
    assert input_of(turns[1:]).text == "Hello?"


def test_a_right_answer_is_a_reference_and_none_is_none() -> None:
    (reference,) = right_replies("water")
    assert (reference.output.text, reference.is_correct) == ("water", True)
    assert right_replies(None) == []


def test_nothing_is_put_around_the_turns() -> None:
    adapter = chat_adapter(7)
    assert (adapter.method, adapter.max_tokens, adapter.num_outputs, adapter.temperature) == ("chat", 7, 1, 0.0)
    assert [adapter.input_prefix, adapter.input_suffix, adapter.output_prefix, adapter.output_suffix] == [""] * 4
    assert (adapter.max_train_instances, adapter.stop_sequences) == (0, [])
