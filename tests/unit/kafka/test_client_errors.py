"""What Java says of a key is told together with what to do about it."""

from pipelines.kafka.client_errors import advice


def test_a_key_that_java_cannot_decrypt_is_told_with_how_to_encrypt_it() -> None:
    said = "java.security.NoSuchAlgorithmException: PBES2 SecretKeyFactory not available"
    assert "openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES" in advice(said)
    assert advice("java.io.FileNotFoundException: /key.pem") == ""
