from __future__ import annotations

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.core.urls import SERVED_AT
from eval_factory.endpoint.endpoint_settings import OAuthSettings
from eval_factory.endpoint.servers import servers_of
from eval_factory.endpoint.sign_in import OAuthSignIn
from unit.builders import endpoint_settings

KEY = "the-key-0123456789"


def test_the_key_is_signed_with_and_never_shown() -> None:
    redactor = Redactor()
    settings = endpoint_settings(key_names=("UNSET", "KEY"), url=f"http://h/{KEY}/v1/", request_timeout=3.0)
    servers = servers_of(settings, env={"KEY": KEY}, redactor=redactor, say=print)
    assert servers.all[0].url == f"http://h/{KEY}/v1/chat/completions"
    assert servers.sign_in.header() == f"Bearer {KEY}"
    assert servers.all[0].messages.url == f"http://h/{REDACTED}/v1/chat/completions"
    assert servers.all[0].messages.key_name == "KEY"
    assert servers.redactor is redactor
    assert servers.all[0].transport.timeout_s == 3.0


def test_a_service_signs_in_place_of_a_key() -> None:
    settings = endpoint_settings(key_names=("KEY",), oauth=OAuthSettings("openai", "https://t/token", None))
    servers = servers_of(settings, env={"KEY": KEY}, redactor=Redactor(), say=print)
    assert isinstance(servers.sign_in, OAuthSignIn)
    assert servers.sign_in.service == "openai"


def test_variables_in_the_url_are_filled_in() -> None:
    settings = endpoint_settings(url="http://h/${PART}/v1")
    servers = servers_of(settings, env={"PART": "a-part-0123456789"}, redactor=Redactor(), say=print)
    assert servers.all[0].url == "http://h/a-part-0123456789/v1/chat/completions"
    with pytest.raises(PrerequisiteError, match="PART"):
        servers_of(settings, env={}, redactor=Redactor(), say=print)


def test_an_embedded_endpoint_is_asked_where_it_is_served() -> None:
    settings = endpoint_settings(url="demo://baseline", use_nvcf=False)
    servers = servers_of(settings, env={}, redactor=Redactor(), say=print, served_url="http://127.0.0.1:1/v1")
    assert servers.all[0].url == "http://127.0.0.1:1/v1/chat/completions"


def test_the_url_of_a_cloud_function_is_taken_as_it_is() -> None:
    settings = endpoint_settings(url="http://h/functions/x", use_nvcf=True)
    assert servers_of(settings, env={}, redactor=Redactor(), say=print).all[0].url == "http://h/functions/x"


def test_a_served_model_is_reached_where_its_server_is() -> None:
    settings = endpoint_settings(url="served://vllm-0a1b/v1")
    env = {SERVED_AT: "http://127.0.0.1:20001"}
    servers = servers_of(settings, env=env, redactor=Redactor(), say=print)
    assert servers.all[0].url == "http://127.0.0.1:20001/v1/chat/completions"
    with pytest.raises(PrerequisiteError, match="its suite serves"):
        servers_of(settings, env={}, redactor=Redactor(), say=print)
