"""The login and the TLS settings of the client that publishes: its own, or those by which the topic is read.

`kafka.options` and `kafka.secrets` have the names of Kafka's client in Java; librdkafka, which publishes,
has others. What has no equal there is refused, so that no client connects with less than was asked for.
"""

import re
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import SecretStr

from pipelines.config.jaas import Jaas, parse_jaas
from pipelines.config.kafka import KafkaConfig
from pipelines.config.model import PipelineConfig
from pipelines.errors import ConfigError

_PROTOCOL: Final = "security.protocol"
_MECHANISM: Final = "sasl.mechanism"
_JAAS: Final = "sasl.jaas.config"
_HANDLER: Final = "sasl.login.callback.handler.class"
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_OF_LOGIN: Final = re.compile(r"(security|sasl|ssl|https)\.|enable\.(ssl|sasl)\.")
# How long and how often Java's client asks for a token; librdkafka knows that by itself.
_NOT_NEEDED: Final = re.compile(r"sasl\.login\.(refresh\.|retry\.|connect\.timeout|read\.timeout)")
_OIDC_HANDLER: Final = re.compile(
    r"org\.apache\.kafka\.common\.security\.oauthbearer\.(secured\.)?OAuthBearerLoginCallbackHandler"
)
_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
_USER: Final = {"username": "sasl.username", "password": "sasl.password"}
_CLIENT: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
_EXTENSION: Final = "extension_"
_NAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
_PEM: Final = "PEM"


@dataclass(frozen=True)
class OutputLogin:
    """How the client that publishes logs in.

    Attributes:
        options: Settings of librdkafka.
        secrets: Further ones, whose values are never shown.
        is_shared: Whether they are made of those of `kafka`; else they are of `publish`.
    """

    options: Mapping[str, str]
    secrets: Mapping[str, SecretStr]
    is_shared: bool

    @property
    def settings(self) -> str:
        """Where to look if the cluster refuses them."""
        shared = "kafka.options and kafka.secrets, which publish shares"
        return f"sasl.* and ssl.* in {shared if self.is_shared else 'publish.options and publish.secrets'}"


def output_login(config: PipelineConfig) -> OutputLogin:
    """Return how a pipeline that publishes logs in to the cluster of the output topic.

    Raises:
        ConfigError: It is to log in as it does to read, and librdkafka cannot.
    """
    publish = config.publish
    if publish is None:
        return OutputLogin({}, {}, is_shared=False)
    is_own = any(_OF_LOGIN.match(name) for name in (*publish.options, *publish.secrets))
    if is_own or publish.bootstrap_servers is not None:
        return OutputLogin(publish.options, publish.secrets, is_shared=False)
    shared = _Translation.of(config.kafka)
    shared.translate()
    secrets = {name: SecretStr(value) for name, value in shared.secrets.items()}
    return OutputLogin({**shared.options, **publish.options}, {**secrets, **publish.secrets}, is_shared=True)


@dataclass
class _Translation:
    """A login by Java's names, of which those that are translated are taken.

    Attributes:
        kafka: Whose.
        given: What is not translated yet.
        protocol: The value of `security.protocol`.
        options: Settings of librdkafka.
        secrets: Settings of librdkafka whose values are secrets.
    """

    kafka: KafkaConfig
    given: dict[str, str] = field(repr=False)
    protocol: str
    options: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, kafka: KafkaConfig) -> "_Translation":
        """Return what there is to translate: what the protocol has a use for."""
        found = {
            **kafka.options,
            **{name: value.get_secret_value() for name, value in kafka.secrets.items()},
        }
        protocol = found.get(_PROTOCOL, "PLAINTEXT").upper()
        used = [prefix for prefix, part in (("ssl.", "SSL"), ("sasl.", "SASL")) if part in protocol]
        given = {
            name: value
            for name, value in found.items()
            if name.startswith((_PROTOCOL, *used)) and not _NOT_NEEDED.match(name)
        }
        return cls(kafka, given, protocol)

    def translate(self) -> None:
        """Take all that is given.

        Raises:
            ConfigError: Something has no equal.
        """
        self._move(_PROTOCOL, _PROTOCOL)
        if "SSL" in self.protocol:
            self._translate_tls()
        if "SASL" in self.protocol:
            self._translate_sasl()
        if self.given:
            raise self._refusal(min(self.given), "librdkafka has no such setting")

    def _translate_tls(self) -> None:
        for store in ("truststore", "keystore"):
            self._require_pem(store)
        self._move("ssl.truststore.location", "ssl.ca.location")
        self._move("ssl.truststore.certificates", "ssl.ca.pem")
        self._move("ssl.keystore.location", "ssl.certificate.location", "ssl.key.location")
        self._move("ssl.keystore.certificate.chain", "ssl.certificate.pem")
        self._move("ssl.keystore.key", "ssl.key.pem")
        self._move("ssl.key.password", "ssl.key.password")
        # Java's has an empty text for it.
        if self.given.get(_NAME_CHECK) == "":
            self.given[_NAME_CHECK] = "none"
        self._move(_NAME_CHECK, _NAME_CHECK)

    def _require_pem(self, store: str) -> None:
        """Make sure that certificates and keys are texts that both clients read."""
        name = f"ssl.{store}.type"
        kind = self.given.pop(name, "JKS")
        if kind != _PEM and any(each.startswith(f"ssl.{store}.") for each in self.given):
            found = self._shown(name, kind)
            raise self._refusal(
                name, f"expected {_PEM}, which both clients read, got {found}: convert the file"
            )

    def _translate_sasl(self) -> None:
        mechanism = self.given.get(_MECHANISM, "GSSAPI")
        if mechanism not in _MODULES:
            found = self._shown(_MECHANISM, mechanism)
            raise self._refusal(_MECHANISM, f"expected {', '.join(_MODULES)} for librdkafka, got {found}")
        self._move(_MECHANISM, _MECHANISM)
        left = dict(self._jaas(_MODULES[mechanism]).options)
        if mechanism != "OAUTHBEARER":
            self._require(left, _USER)
            self.secrets |= {setting: left.pop(name) for name, setting in _USER.items()}
        elif (handler := self.given.pop(_HANDLER, None)) is None:
            self._translate_unsecured(left)
        elif _OIDC_HANDLER.fullmatch(handler):
            self._translate_oidc(left)
        else:
            raise self._refusal(_HANDLER, "librdkafka cannot run this class")
        if left:
            raise self._refusal(_JAAS, "has further options, and librdkafka nothing like them")

    def _jaas(self, module: str) -> Jaas:
        text = self.given.pop(_JAAS, None)
        if text is None:
            raise self._refusal(_JAAS, f"missing; expected a login for {_MECHANISM}")
        try:
            jaas = parse_jaas(text)
        except ValueError as error:
            raise self._refusal(_JAAS, f"{error} (the value is not shown here)") from None
        if jaas.module != module:
            raise self._refusal(_JAAS, f"expected the class {module}, by {_MECHANISM}, got another")
        return jaas

    def _require(self, options: Collection[str], names: Collection[str]) -> None:
        if missing := [name for name in names if name not in options]:
            raise self._refusal(
                _JAAS, f"expected the options {', '.join(names)}; missing: {', '.join(missing)}"
            )

    def _translate_unsecured(self, left: dict[str, str]) -> None:
        """Translate a login by tokens that nobody signs, which a cluster takes only to try things out."""
        subject = left.pop(_SUBJECT, "")
        if not re.fullmatch(r"[^\s=\"]+", subject):
            wanted = (
                f"expected {_SUBJECT}, a name without spaces; or set {_HANDLER}, for tokens of an endpoint"
            )
            raise self._refusal(_JAAS, wanted)
        self.options["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
        self.secrets["sasl.oauthbearer.config"] = f"principal={subject}"

    def _translate_oidc(self, left: dict[str, str]) -> None:
        """Translate a login by tokens of an endpoint (OpenID Connect)."""
        if _ENDPOINT not in self.given:
            raise self._refusal(_ENDPOINT, "missing; tokens come from there")
        self._require(left, ("clientId", "clientSecret"))
        self.options["sasl.oauthbearer.method"] = "oidc"
        is_https = self.given[_ENDPOINT].startswith("https:")
        self._move(_ENDPOINT, _ENDPOINT)
        self.secrets |= {setting: left.pop(name) for name, setting in _CLIENT.items() if name in left}
        extensions = [name for name in left if name.startswith(_EXTENSION)]
        if extensions:
            pairs = (f"{name.removeprefix(_EXTENSION)}={left.pop(name)}" for name in extensions)
            self.secrets["sasl.oauthbearer.extensions"] = ",".join(pairs)
        if is_https:
            self.options |= self._authorities(left)

    def _authorities(self, left: dict[str, str]) -> dict[str, str]:
        """Return who may have signed the certificate of the endpoint.

        That is whom the login names, or whom this machine trusts.
        """
        kind, file = left.pop("ssl.truststore.type", "JKS"), left.pop("ssl.truststore.location", None)
        text = left.pop("ssl.truststore.certificates", None)
        if (file or text) and kind != _PEM:
            raise self._refusal(_JAAS, f'expected ssl.truststore.type="{_PEM}" among its options')
        if text:
            return {"https.ca.pem": text}
        # The path that is built into librdkafka is that of one system among many.
        file = file or ssl.get_default_verify_paths().cafile
        return {"https.ca.location": file} if file else {}

    def _move(self, name: str, *settings: str) -> None:
        """Take a setting, whose value librdkafka takes as it is."""
        value = self.given.pop(name, None)
        if value is not None:
            into = self.secrets if name in self.kafka.secrets else self.options
            into |= dict.fromkeys(settings, value)

    def _shown(self, name: str, value: str) -> str:
        return "a value that is not shown" if name in self.kafka.secrets else value

    def _refusal(self, name: str, why: str) -> ConfigError:
        part = "secrets" if name in self.kafka.secrets or name == _JAAS else "options"
        return ConfigError(
            f"{self.kafka.setting(f'{part}.{name}')}: {why}. publish logs in as it says, with librdkafka:"
            " change it, or give publish.options and publish.secrets a login of their own, by librdkafka's"
            " names; see docs/security.md, 'Logins'"
        )
