"""Logins that a configuration sends without TLS to another machine, by HTTP or to Kafka."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from pipelines.config.model import NotifyConfig, PipelineConfig, RegistryConfig
from pipelines.config.risks import TakenRisk
from pipelines.config.values import carries_login

_EXPECTED: Final = "https://, unless the address is one of this machine"
# By the names of confluent-kafka; what the keys of certificates are is sent to nobody.
_REGISTRY_LOGIN: Final = re.compile(r"(basic\.auth|bearer\.auth|sasl)\.")
_ISSUER: Final = "bearer.auth.issuer.endpoint.url"
# With others, such as SCRAM, what is sent does not tell the password.
_TELLING: Final = frozenset({"PLAIN", "OAUTHBEARER"})
_PROTOCOL: Final = "security.protocol"
# librdkafka knows both.
_MECHANISMS: Final = ("sasl.mechanism", "sasl.mechanisms")
_TOKENS: Final = "sasl.oauthbearer.token.endpoint.url"
_S3A: Final = "spark.hadoop.fs.s3a."
_ENDPOINT: Final = "endpoint"
_TLS: Final = "connection.ssl.enabled"
_OF_BUCKET: Final = re.compile(rf"{re.escape(_S3A)}bucket\.(.+)\.({_ENDPOINT}|{re.escape(_TLS)})")


def plain_logins(config: PipelineConfig) -> Iterator[TakenRisk]:
    """Yield the settings by which a login, or a request that it signs, is sent to others in plain text."""
    for kafka in (each.kafka for each in config.sources() if not each.kafka.retired):
        section = ("kafka",) if kafka.cluster is None else ("kafka", "clusters", kafka.cluster)
        yield from _of_client(section, kafka.bootstrap_servers, kafka.options, kafka.secrets)
    if publish := config.publish:
        servers = publish.bootstrap_servers or config.kafka.bootstrap_servers
        yield from _of_client(("publish",), servers, publish.options, publish.secrets)
    if config.registry:
        yield from _of_registry(config.registry)
    yield from _of_webhook(config.notify)
    # A setting of all buckets is told once.
    of_s3 = (each for bucket in ("", *_buckets(config)) for each in _of_s3(config, bucket))
    yield from {each.location: each for each in of_s3}.values()


def _of_client(
    section: tuple[str, ...], servers: str, options: Mapping[str, str], secrets: Mapping[str, SecretStr]
) -> Iterator[TakenRisk]:
    """Yield the settings by which a client of Kafka sends a password or a token in plain text."""
    given = {**options, **{name: value.get_secret_value() for name, value in secrets.items()}}
    mechanism = next((given[name].strip().upper() for name in _MECHANISMS if name in given), "")
    protocol = given.get(_PROTOCOL, "").strip().upper()
    other = next((each.strip() for each in servers.split(",") if not _is_here(f"//{each.strip()}")), None)
    if protocol == "SASL_PLAINTEXT" and mechanism in _TELLING and other:
        what = "a password" if mechanism == "PLAIN" else "a token"
        yield TakenRisk(
            "login_in_plain_text",
            (*section, "secrets" if _PROTOCOL in secrets else "options", _PROTOCOL),
            f"SASL_PLAINTEXT, by which {mechanism} sends {what} to {other}",
            "SASL_SSL, unless all servers are on this machine",
            f"let the brokers listen by SASL_SSL, set {_PROTOCOL} to it, and change the login",
        )
    asks_for_tokens = protocol.startswith("SASL") and mechanism == "OAUTHBEARER"
    if asks_for_tokens and is_plain(issuer := given.get(_TOKENS, "")):
        part = "secrets" if _TOKENS in secrets else "options"
        yield plain_risk(
            (*section, part, _TOKENS), f"{shown_address(issuer)}, with a login", "set it to https://"
        )


def _of_registry(registry: RegistryConfig) -> Iterator[TakenRisk]:
    logins = sorted(filter(_REGISTRY_LOGIN.match, {*registry.options, *registry.secrets}))
    plain = next((url for url in registry.url.split(",") if is_plain(url)), None)
    if plain and logins:
        fix = "set registry.url to https://, and ssl.ca.location in registry.options if its CA is your own"
        yield plain_risk(("registry", "url"), f"{shown_address(plain)}, with a login ({logins[0]})", fix)
    issuer = registry.options.get(_ISSUER, "")
    if is_plain(issuer):
        yield plain_risk(
            ("registry", "options", _ISSUER), f"{shown_address(issuer)}, with a login", "set it to https://"
        )


def _of_webhook(notify: NotifyConfig) -> Iterator[TakenRisk]:
    logins = sorted(filter(carries_login, notify.headers))
    if notify.webhook and logins and is_plain(notify.webhook.get_secret_value()):
        # The address itself may be a secret.
        found = f"http:// and an address that is not shown, with the header {logins[0]}"
        yield plain_risk(("notify", "webhook"), found, "set notify.webhook to https://")


def _buckets(config: PipelineConfig) -> list[str]:
    """Return the buckets that have settings of their own, each as a part of the names of these."""
    matches = filter(None, map(_OF_BUCKET.fullmatch, config.spark.conf))
    return sorted({f"bucket.{match[1]}." for match in matches})


def _of_s3(config: PipelineConfig, bucket: str) -> Iterator[TakenRisk]:
    """Yield the setting by which requests to S3 are not encrypted, of all buckets or of one."""
    conf = config.spark.conf
    names = {each: [f"{_S3A}{bucket}{each}", f"{_S3A}{each}"] for each in (_ENDPOINT, _TLS)}
    endpoint, tls = (next((name for name in each if name in conf), "") for each in names.values())
    address, is_off = conf.get(endpoint, ""), conf.get(tls, "").strip().lower() == "false"
    if "://" in address:
        if is_plain(address):
            found = f"{shown_address(address)}, which requests are signed for"
            yield plain_risk(("spark", "conf", endpoint), found, f"set {endpoint} to https://")
    elif is_off and not _is_here(f"http://{address}"):
        yield TakenRisk(
            "login_in_plain_text",
            ("spark", "conf", tls),
            "false, so requests that the login signs are sent over http://",
            "true, unless the endpoint is one of this machine",
        )


def plain_risk(location: tuple[str, ...], found: str, fix: str) -> TakenRisk:
    """Return the risk of a login that is sent over HTTP.

    Args:
        location: The setting, as keys from the outermost on.
        found: Its value, as far as it may be shown.
        fix: What helps, beside another login.
    """
    return TakenRisk("login_in_plain_text", location, found, _EXPECTED, f"{fix}, and change the login")


def is_plain(url: str) -> bool:
    """Return whether what is sent to an address can be read on the way to another machine."""
    return url.strip().lower().startswith("http://") and not _is_here(url)


def _is_here(url: str) -> bool:
    """Return whether an address is one of this machine, which nobody else can listen to."""
    try:
        host = urlsplit(url.strip()).hostname or ""
    except ValueError:
        # Brackets that are open; whoever asks there is refused.
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def shown_address(url: str) -> str:
    """Return an address without what may be a secret in it."""
    return f"http://{urlsplit(url.strip()).netloc.rpartition('@')[2]}"
