"""Turns an endpoint's reply to a request, or a failure, into the result that HELM expects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from helm.clients.client import truncate_sequence
from helm.common.media_object import MediaObject, MultimediaObject
from helm.common.request import ErrorFlags, GeneratedOutput, Request, RequestResult, Thinking, Token

from eval_factory.core.results import MODEL_ROLE
from eval_factory.endpoint import made_pictures, openai_answers, openai_api
from eval_factory.endpoint.endpoint_settings import EndpointSettings


@dataclass(frozen=True)
class Reply:
    """The reply to a request, from the cache or from the endpoint."""

    key: str  # the cache key of the answer
    completion: openai_answers.Completion
    latency_s: float
    created: float  # in seconds since 1970
    cached: bool  # True if this run did not send the request for this reply


class ResultMaker:
    """Makes HELM's results from the replies of one endpoint.

    Args:
        settings: the settings of the endpoint.
        picture_folder: the folder with the pictures that the model made.
        warn_once: emits a warning, unless an equal warning was emitted before.
    """

    def __init__(
        self, settings: EndpointSettings, picture_folder: Path, warn_once: Callable[[str], object]
    ) -> None:
        self._settings = settings
        self._picture_folder = picture_folder
        self._warn_once = warn_once

    def result(self, request: Request, reply: Reply) -> RequestResult:
        """Return HELM's form of a reply."""
        if any(
            choice.finish_reason == openai_answers.FILTERED for choice in reply.completion.choices
        ):
            return failed_result(openai_answers.FILTERED_MESSAGE)
        _, answer_tokens = reply.completion.tokens
        completions = [
            self._completion(request, choice, answer_tokens) for choice in reply.completion.choices
        ]
        return RequestResult(
            success=True,
            embedding=[],
            completions=completions,
            cached=reply.cached,
            request_time=reply.latency_s,
            request_datetime=int(reply.created),
        )

    def _completion(
        self, request: Request, choice: openai_answers.Choice, answer_tokens: int | None
    ) -> GeneratedOutput:
        """Return HELM's form of one choice of an answer.

        `answer_tokens` is the endpoint's count of tokens in the answer; None if there is no count.
        """
        if self._settings.endpoint_type == openai_api.IMAGES:
            # HELM's own client for generated pictures returns this form.
            file, content_type = made_pictures.picture_path_and_type(
                self._picture_folder, choice.text
            )
            picture = MediaObject(content_type=content_type, location=str(file))
            content = MultimediaObject([picture])
            return GeneratedOutput(text="", logprob=0, tokens=[], multimodal_content=content)
        is_chat = self._settings.endpoint_type == openai_api.CHAT
        is_cut_off = choice.finish_reason == openai_answers.CUT_OFF
        # This adapter holds the user's changes of requests and answers; it is not HELM's adapter.
        split = self._settings.adapter.split_reasoning(choice.text, cut_off=is_cut_off)
        text = split.answer
        if is_cut_off and not text and self._settings.role == MODEL_ROLE:
            self._warn_once(openai_answers.cut_off_advice(request.max_tokens, answer_tokens))
        reasoning = choice.reasoning if split.thought is None else split.thought
        # Completions endpoints echo the prompt themselves.
        if request.echo_prompt and is_chat:
            text = request.prompt + text
        output = GeneratedOutput(
            text=text,
            logprob=sum(logprob for _, logprob in choice.tokens),
            tokens=[Token(text=token, logprob=logprob) for token, logprob in choice.tokens],
            finish_reason={"reason": choice.finish_reason},
            thinking=Thinking(text=reasoning) if reasoning is not None else None,
        )
        # Completions endpoints may send text after this token. HELM's own client cuts there too.
        end_token = None if is_chat else "<|endoftext|>"
        return truncate_sequence(output, request, end_of_text_token=end_token, print_warning=False)


def failed_result(message: str) -> RequestResult:
    """Return HELM's result for a request that failed for good."""
    flags = ErrorFlags(is_retriable=False, is_fatal=False)
    return RequestResult(
        success=False,
        embedding=[],
        completions=[],
        cached=False,
        error=message,
        error_flags=flags,
    )
