"""Why Kafka's client in Java got no token for its login (OAUTHBEARER): its own exception does not say."""

import re
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.kafka.client_errors import kafka_error_text, kinds

_HANDLER: Final = "sasl.login.callback.handler.class"
_LOGIN_EXCEPTION: Final = "javax.security.auth.login.LoginException"
# The client has tried for longer before.
_WITHIN_MS: Final = "100"
_NOT_REACHED: Final = re.compile(
    r"java\.net\.(Connect|NoRouteToHost|SocketTimeout|Socket|UnknownHost)Exception"
)
_OUT_OF_ORDER: Final = "The unexpected response code 5"


def token_failure(spark: SparkSession, properties: Any, error: Py4JJavaError) -> Py4JJavaError | None:
    """Ask for a token once more, as the client did, and return what that fails with.

    Args:
        spark: The session, whose JVM has the Kafka client.
        properties: The settings of the client, as Java's `Properties`.
        error: What the client has failed with.

    Returns:
        None if it did not fail for want of a token, or there is one now.
    """
    if properties.getProperty(_HANDLER) is None or _LOGIN_EXCEPTION not in kinds(error):
        return None
    jvm: Any = spark.sparkContext._jvm
    gateway: Any = spark.sparkContext._gateway
    security = jvm.org.apache.kafka.common.security
    properties = properties.clone()
    for name in ("sasl.login.retry.backoff.ms", "sasl.login.retry.backoff.max.ms"):
        properties.setProperty(name, _WITHIN_MS)
    try:
        settings = jvm.org.apache.kafka.clients.admin.AdminClientConfig(properties).values()
        entries = security.JaasContext.loadClientContext(settings).configurationEntries()
        handler = jvm.org.apache.kafka.common.utils.Utils.newInstance(settings.get(_HANDLER))
        callbacks = gateway.new_array(jvm.javax.security.auth.callback.Callback, 1)
        callbacks[0] = security.oauthbearer.OAuthBearerTokenCallback()
        handler.configure(settings, settings.get("sasl.mechanism"), entries)
        handler.handle(callbacks)
        handler.close()
    except Py4JJavaError as failure:
        return failure
    return None


def may_pass(failure: Py4JJavaError) -> bool:
    """Return whether the endpoint of tokens does not answer or is out of order, rather than refuses."""
    return any(map(_NOT_REACHED.fullmatch, kinds(failure))) or _OUT_OF_ORDER in kafka_error_text(failure)
