"""A broker that demands TLS and a login, and denies whatever no ACL allows."""

import ipaddress
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from pipelines.doctor.acls import Acl
from pipelines.errors import InfrastructureError
from pipelines.runtime.jars import ensure_jars
from pipelines.runtime.java import find_java
from pipelines.runtime.local_broker import CLUSTER_ID, LOG4J, unused_ports
from pipelines.runtime.processes import end_processes
from testbed.short_lived_settings import BRIEF_JAVA
from testbed.waiting import wait_until
from tests.support.identity_provider import AUDIENCE, ISSUER, IdentityProvider
from tests.support.kafka import make_topic

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

_WITHIN_S: Final = 60.0
_MODULES: Final = "org.apache.kafka.common.security"
_ADMIN: Final = ("admin", "of the broker alone")
_PLAIN_USER: Final = "plain"
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
_OPERATIONS: Final = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Create": AclOperation.CREATE,
    "Alter": AclOperation.ALTER,
}


@dataclass(frozen=True)
class SecuredBroker:
    """A running broker.

    Attributes:
        servers: its address.
        authority: the file with the certificate of the authority that has signed the broker's.
        plain_password: of the user `plain`, who logs in by PLAIN.
        by_certificate: its address for clients that have a certificate, whose name is the user.
        by_token: its address for clients that have a token of the provider of identities.
    """

    servers: str
    authority: Path
    plain_password: str
    by_certificate: str = ""
    by_token: str = ""

    @property
    def admin(self) -> AdminClient:
        """A client that may do everything."""
        user, password = _ADMIN
        login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
        return AdminClient(self.client(login))

    def client(self, login: dict[str, str]) -> dict[str, Any]:
        """Settings of librdkafka with a login."""
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "log_level": 0,
            **login,
        }

    def java(self, mechanism: Mechanism) -> tuple[str, ...]:
        """Settings of a pipeline by which the Kafka client in Java reaches it."""
        return (
            f"kafka.bootstrap_servers={self.servers}",
            "kafka.options.security.protocol=SASL_SSL",
            f"kafka.options.sasl.mechanism={mechanism}",
            "kafka.options.ssl.truststore.type=PEM",
            f"kafka.options.ssl.truststore.location={self.authority}",
        )

    def create(self, *topics: str) -> None:
        """Makes topics."""
        for topic in topics:
            make_topic(self.admin, NewTopic(topic, 2, 1))

    def set_password(self, user: str, password: str) -> None:
        """Gives a user a password, for SCRAM-SHA-256: that of before no longer counts."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        altered = UserScramCredentialUpsertion(user, how, password.encode())
        # Its answers come for as long as the client lives.
        admin = self.admin
        admin.alter_user_scram_credentials([altered])[user].result(_WITHIN_S)

    def allow(self, user: str, acls: Iterable[Acl]) -> None:
        """Allows a user what is listed; nothing else is."""
        bindings = [
            AclBinding(
                _RESOURCES[acl.resource],
                acl.name,
                ResourcePatternType.PREFIXED if acl.is_prefix else ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                _OPERATIONS[acl.operation],
                AclPermissionType.ALLOW,
            )
            for acl in acls
        ]
        admin = self.admin
        for made in admin.create_acls([*dict.fromkeys(bindings)]).values():
            made.result(_WITHIN_S)


def jaas(mechanism: Mechanism, user: str, password: str) -> str:
    """The login of a user, as Kafka's client in Java takes it; with OAUTHBEARER the token is not signed."""
    match mechanism:
        case "OAUTHBEARER":
            words = f'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}"'
        case "PLAIN":
            words = f'plain.PlainLoginModule required username="{user}" password="{password}"'
        case _:
            words = f'scram.ScramLoginModule required username="{user}" password="{password}"'
    return f"{_MODULES}.{words};"


@contextmanager
def secured_broker(
    folder: Path,
    plain_password: str,
    authority: "Authority",
    provider: IdentityProvider,
) -> Iterator[SecuredBroker]:
    """Runs the broker for the length of a block.

    Args:
        folder: where it writes.
        plain_password: of the user `plain`.
        authority: signs its certificate, and those of its clients.
        provider: whose tokens it takes.
    """
    ports = unused_ports(4)
    keys = authority.issue(folder / "server.pem")
    properties = folder / "server.properties"
    text = _properties(folder, ports, (authority.file, keys), plain_password)
    properties.write_text(text + _of_tokens(provider.keys_url), encoding="ascii")
    (folder / "log4j2.properties").write_text(LOG4J)
    java = [str(find_java().executable), "-Xmx400m", *BRIEF_JAVA.split()]
    java += [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.keys_url}"]
    java += [f"-Dlog4j2.configurationFile={folder}/log4j2.properties"]
    java += ["-cp", os.pathsep.join(map(str, ensure_jars("broker")))]
    log = folder / "broker.log"
    with log.open("wb") as said:
        formatting = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config"]
        subprocess.run([*java, *formatting, str(properties)], check=True, stdout=said, stderr=said)
        process = psutil.Popen(
            [*java, "kafka.Kafka", str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        addresses = [f"127.0.0.1:{port}" for port in ports]
        broker = SecuredBroker(addresses[0], authority.file, plain_password, *addresses[2:])
        admin = broker.admin

        def answers() -> bool:
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                raise InfrastructureError(f"the broker ended: {log.read_text(errors='replace')[-3000:]}")
            with suppress(KafkaException):
                return bool(admin.list_topics(timeout=1).brokers)
            return False

        wait_until(answers, f"the broker answers, see {log}", _WITHIN_S)
        yield broker
    finally:
        end_processes([process], _WITHIN_S)


def _of_tokens(keys_url: str) -> str:
    """Of the listener for clients with a token of the provider of identities."""
    listener = "listener.name.tokens"
    module = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
    handler = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    return f"""\
{listener}.sasl.enabled.mechanisms=OAUTHBEARER
{listener}.oauthbearer.sasl.jaas.config={module} required;
{listener}.oauthbearer.sasl.server.callback.handler.class={handler}
sasl.oauthbearer.jwks.endpoint.url={keys_url}
sasl.oauthbearer.expected.audience={AUDIENCE}
sasl.oauthbearer.expected.issuer={ISSUER}
"""


def _properties(folder: Path, ports: Sequence[int], files: tuple[Path, Path], plain_password: str) -> str:
    port, controller, certificates, tokens = ports
    authority, keys = files
    user, password = _ADMIN
    users = f'user_{user}="{password}" user_{_PLAIN_USER}="{plain_password}"'
    plain = f'{_MODULES}.plain.PlainLoginModule required username="{user}" password="{password}" {users};'
    addresses = {"SASL_SSL": port, "CERTIFICATES": certificates, "TOKENS": tokens}
    listeners = ",".join(f"{name}://127.0.0.1:{number}" for name, number in addresses.items())
    listener = "listener.name.sasl_ssl"
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
listener.security.protocol.map=SASL_SSL:SASL_SSL,CERTIFICATES:SSL,TOKENS:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.certificates.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=(.*?)$/$1/
inter.broker.listener.name=SASL_SSL
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,OAUTHBEARER
{listener}.plain.sasl.jaas.config={plain}
{listener}.scram-sha-256.sasl.jaas.config={_MODULES}.scram.ScramLoginModule required;
{listener}.oauthbearer.sasl.jaas.config={jaas("OAUTHBEARER", user, "")}
ssl.keystore.type=PEM
ssl.keystore.location={keys}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
# The controller's listener, on which nobody logs in, is for the broker itself.
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:{user};User:ANONYMOUS
allow.everyone.if.no.acl.found=false
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.ms=-1
log.roll.hours=876000
"""


class Authority:
    """Signs certificates for 127.0.0.1.

    Args:
        folder: where its own is put.

    Attributes:
        file: its certificate.
    """

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority {os.urandom(8).hex()}")])
        now = datetime.now(UTC)
        certificate = (
            _begun(self._name, self._name, self._key, (now - timedelta(days=30), now + timedelta(days=30)))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "authority.pem"
        self.file.write_bytes(certificate.public_bytes(Encoding.PEM))

    def issue(
        self, file: Path, *, has_expired: bool = False, name: str = "127.0.0.1", password: str = ""
    ) -> Path:
        """Writes a new key and its certificate to a file, which is returned.

        Args:
            file: the file.
            has_expired: whether the certificate has.
            name: whose it is.
            password: of the key; without it, the key is not encrypted.
        """
        now = datetime.now(UTC)
        until = now - timedelta(days=1) if has_expired else now + timedelta(days=1)
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        certificate = (
            _begun(subject, self._name, key, (now - timedelta(days=2), until))
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encrypted = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encrypted)
        file.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        return file


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: rsa.RSAPrivateKey,
    valid: tuple[datetime, datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
    )
