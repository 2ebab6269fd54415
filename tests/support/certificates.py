"""Certificates for tests, made by the openssl command."""

import subprocess


def make_certificate(folder, *, name="localhost", sans="DNS:localhost,IP:127.0.0.1", stem=""):
    """Write a self-signed certificate, cert.pem, and its key, key.pem, into a folder."""
    kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    options = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={sans}"]
    files = ["-keyout", folder / f"{stem}key.pem", "-out", folder / f"{stem}cert.pem"]
    subprocess.run(["openssl", *kind.split(), *options, *files], check=True, capture_output=True)
    return folder
