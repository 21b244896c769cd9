"""Makes the bodies of requests to an endpoint from HELM's requests, with their cache keys.

An answer is cached under the key of its request, a hash of the endpoint, the model and the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from helm.common.media_object import MediaObject
from helm.common.request import Request

from eval_factory.core.results import MODEL_ROLE
from eval_factory.endpoint import bridge, openai_api
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.media import FILE_MARK
from eval_factory.endpoint.refused_parameters import Changes
from eval_factory.helm_plugin.session import judged_pictures, verdict_schema

# The text that replaces a picture in the prompt of a judge who sees no pictures.
NOT_SHOWN = "[a picture that you are not shown]"
# The fields of HELM's requests from which the body is made. Other fields are read one by one.
_REQUEST_FIELDS = (
    "prompt",
    "messages",
    "temperature",
    "num_completions",
    "max_tokens",
    "stop_sequences",
    "echo_prompt",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
)


class KeyedRequest:
    """The body of a request with its cache key.

    The key is computed once, because computing a key means hashing the prompt.
    """

    def __init__(
        self, settings: EndpointSettings, body: dict[str, Any], random: str | None
    ) -> None:
        self.body = body
        self.key = settings.key_of(body, random)
        self.random = random
        """The text by which intended repeats of a request differ; None without such repeats."""
        self._settings = settings

    def with_changes(self, changes: Changes) -> KeyedRequest:
        """Return the request with changed parameters, for an endpoint that refuses the original.

        The answer is cached under the key of the changed request.
        """
        return KeyedRequest(
            self._settings, openai_api.with_changes(self.body, changes), self.random
        )


class RequestMaker:
    """Makes the bodies of HELM's requests to one endpoint."""

    def __init__(self, settings: EndpointSettings, stop: Callable[[str], NoReturn]) -> None:
        self._settings = settings
        self._stop = stop  # raises EndpointStopped with a message

    def keyed(self, request: Request) -> KeyedRequest:
        """Return HELM's request as the body that is sent, with the body's cache key.

        The run is stopped if the type of the endpoint does not fit the request.
        """
        settings = self._settings
        fields = {name: getattr(request, name) for name in _REQUEST_FIELDS}
        parameters = request.image_generation_parameters
        asks_for_pictures = parameters is not None
        if asks_for_pictures != (settings.endpoint_type == openai_api.IMAGES):
            self._stop(
                "benchmarks that ask for pictures need target.api_endpoint.type: images, and "
                "other benchmarks another type"
            )
        fields["image_generation_parameters"] = vars(parameters) if asks_for_pictures else None
        if settings.structured:
            fields["schema"] = verdict_schema()
        if self._pictures_to_judge() and not settings.sees_images:
            fields["prompt"] = request.prompt.replace(FILE_MARK, NOT_SHOWN)
        media_objects = self._media_of(request)
        if not media_objects:
            return KeyedRequest(settings, settings.body_of(fields), request.random)
        if settings.endpoint_type != openai_api.CHAT:
            self._stop(
                "this benchmark shows pictures or plays sounds, which needs "
                "target.api_endpoint.type: chat"
            )
        media_fields = [medium.to_dict() for medium in media_objects]
        fields["multimodal_prompt"] = {"media_objects": media_fields}
        # Making the body reads the files of the media, which would block all other requests.
        body = bridge.run_in_thread(settings.body_of, fields)
        return KeyedRequest(settings, body, request.random)

    def _pictures_to_judge(self) -> list[MediaObject]:
        """Return the pictures of the question that this endpoint judges, if it is a judge."""
        return [] if self._settings.role == MODEL_ROLE else judged_pictures()

    def _media_of(self, request: Request) -> list[MediaObject]:
        """Return the media and texts to send; an empty list if the request is only a prompt."""
        pictures_to_judge = self._pictures_to_judge()
        if pictures_to_judge and self._settings.sees_images:
            return [*pictures_to_judge, MediaObject("text/plain", text=request.prompt)]
        if request.multimodal_prompt is None:
            return []
        return list(request.multimodal_prompt.media_objects)
