"""Tests for masking secrets in text.

All texts in this module that look like secrets were invented for the tests.
"""

import random
import re
import string
import time
from urllib.parse import quote, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.secret_kinds import list_kinds
from trainvitals.masking import mask_command, mask_lines, mask_text

LETTERS = "Q7wErT5yUiOp3AsDfGhJ9kLzXcVbN1mQ2wErT5yU"  # forty of them
HEX = "0f4c2a9e7b1d8c3f5a6e0b9d2c7f1a4e8b3d6c50"  # forty, as in a key of Weights & Biases
BASE64 = "Zm9vYmFyYmF6cXV4MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3A9PQ"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
PEM = f"""\
-----BEGIN RSA PRIVATE KEY-----
MII{LETTERS}
{LETTERS}
-----END RSA PRIVATE KEY-----"""

SECRETS = [
    # Each row has a text, the secret in it, and a text that must remain visible.
    (f"using hf_{LETTERS[:34]} for the hub", LETTERS[:34], "using *** for the hub"),
    (f"remote: ghp_{LETTERS[:36]}", LETTERS[:36], "remote: ***"),
    (f"github_pat_11ABC_{LETTERS} is bad", LETTERS, "*** is bad"),
    (f"glpat-{LETTERS[:20]}", LETTERS[:20], "***"),
    (f"Incorrect API key: sk-proj-{LETTERS}.", LETTERS, "Incorrect API key: ***."),
    (f"sk-{LETTERS[:20]}T3BlbkFJ{LETTERS[:20]}", LETTERS[:20], "***"),
    (f"sk-ant-api03-{LETTERS}-AA", LETTERS, "***"),
    ("id AKIAIOSFODNN7QWERTYU", "AKIAIOSFODNN7QWERTYU", "id ***"),
    (f"aws_secret_access_key = {LETTERS}", LETTERS, "aws_secret_access_key = ***"),
    (f"AWS_SESSION_TOKEN={BASE64}==", BASE64, "AWS_SESSION_TOKEN=***"),
    (f"AIza{LETTERS[:35]}", LETTERS[:35], "***"),
    (f"ya29.{LETTERS}", LETTERS, "***"),
    (
        f'"private_key": "-----BEGIN PRIVATE KEY-----\\n{BASE64}\\n-----END PRIVATE KEY-----\\n", "a": 1',
        BASE64,
        '", "a": 1',
    ),
    ("xoxb-123456789012-abcdefGHIJKL", "abcdefGHIJKL", "***"),
    (
        "POST https://hooks.slack.com/services/T00/B00/XyZ12345 404",
        "XyZ12345",
        "POST https://hooks.slack.com/services/*** 404",
    ),
    (
        "https://discord.com/api/webhooks/123456/ab-CD_ef",
        "ab-CD_ef",
        "https://discord.com/api/webhooks/***",
    ),
    (
        "https://acme.webhook.office.com/webhookb2/1f-2e@3d/IncomingWebhook/4c5b/6a",
        "4c5b",
        "https://acme.webhook.office.com/webhookb2/***",
    ),
    (
        f"https://api.telegram.org/bot123456789:{LETTERS[:35]}/sendMessage",
        LETTERS[:35],
        "https://api.telegram.org/***/sendMessage",
    ),
    (f"WANDB_API_KEY={HEX} python train.py", HEX, "WANDB_API_KEY=*** python train.py"),
    (f"+ wandb login --relogin {HEX}", HEX, "+ wandb login --relogin ***"),
    (f'wandb.login(key="{HEX}")', HEX, 'wandb.login(key="***")'),
    (f"COMET_API_KEY: {LETTERS[:25]}", LETTERS[:25], "COMET_API_KEY: ***"),
    (f"NEPTUNE_API_TOKEN='{BASE64}=='", BASE64, "NEPTUNE_API_TOKEN='***'"),
    (
        f"DefaultEndpointsProtocol=https;AccountName=runs;AccountKey={BASE64}==;EndpointSuffix=x",
        BASE64,
        "AccountName=runs;AccountKey=***;EndpointSuffix=x",
    ),
    (
        f"https://runs.blob.core.windows.net/c/f?sv=2022&sig={LETTERS}%3D&se=2027",
        LETTERS,
        "?sv=2022&sig=***&se=2027",
    ),
    (
        f"https://bucket.s3.amazonaws.com/w.bin?X-Amz-Signature={HEX}",
        HEX,
        "w.bin?X-Amz-Signature=***",
    ),
    (f"got {JWT} back", "dozjgNryP4J3jVmNHl0w5N", "got *** back"),
    (f"Authorization: Bearer {LETTERS}", LETTERS, "Authorization: ***"),
    (f"curl -H 'Authorization: token {HEX}' url", HEX, "curl -H 'Authorization: ***' url"),
    ("authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", "authorization: ***"),
    ("sent Basic dXNlcjpwYXNz to it", "dXNlcjpwYXNz", "sent Basic *** to it"),
    (f"with bearer {LETTERS}", LETTERS, "with bearer ***"),
    ("X-Api-Key: q1w2e3", "q1w2e3", "X-Api-Key: ***"),
    ("Cookie: session=abc; theme=dark", "abc", "Cookie: ***"),
    ("Set-Cookie: sid=31d4d96e; HttpOnly", "31d4d96e", "Set-Cookie: ***"),
    ("git clone https://ann:s3cret@git.example/x", "s3cret", "https://ann:***@git.example/x"),
    (f"git clone https://{HEX}@git.example/x", HEX, "https://***@git.example/x"),
    ("postgres://trainer:p@ss/w0rd@db:5432/runs", "p@ss", "postgres://trainer:***@db:5432/runs"),
    ("redis://:hunter2@cache:6379/0", "hunter2", "redis://:***@cache:6379/0"),
    ("mlflow server --password hunter2 --port 5000", "hunter2", "--password *** --port 5000"),
    ("docker run -e HF_TOKEN=abc image", "abc", "docker run -e HF_TOKEN=*** image"),
    ("env DB_PASS=abc MLFLOW_TRACKING_PASSWORD=d,e;f x", "d,e;f", "DB_PASS=*** "),
    ("mysql -h db -u root -phunter2 runs", "hunter2", "mysql -h db -u root -p*** runs"),
    ("docker login -u ann -p hunter2 registry", "hunter2", "-p *** registry"),
    ("curl -u ann:hunter2 https://x", "hunter2", "curl -u ann:*** https://x"),
    ("machine hub login ann password hunter2", "hunter2", "login ann password ***"),
    ("ALTER USER ann PASSWORD 'hunter2'", "hunter2", "PASSWORD '***'"),
    (PEM, LETTERS, "-----END RSA PRIVATE KEY-----"),
    (PEM.replace("RSA", "OPENSSH"), LETTERS, "-----BEGIN OPENSSH PRIVATE KEY-----\n***\n***\n"),
    ("\n".join(PEM.split("\n")[:3]) + "\nnext line", LETTERS, "next line"),
    (f"ssh-ed25519 AAAAC3NzaC1lZDI1{LETTERS} ann@box", LETTERS, "ssh-ed25519 *** ann@box"),
    (f"//npm.example/:_authToken=npm_{LETTERS[:36]}", LETTERS[:36], "_authToken=***"),
    (f"pypi-AgEIcHlwaS5vcmc{LETTERS}", LETTERS, "***"),
    ("password: x1", "x1", "password: ***"),
    ("password = 12345", "12345", "password = ***"),
    ("api_key='x1'", "x1", "api_key='***'"),
    ('{"token": "x1", "lr": 0.1}', "x1", '{"token": "***", "lr": 0.1}'),
    (r'"{\"token\": \"x1\", \"lr\": 1}"', "x1", r"\"token\": \"***\", \"lr\": 1"),
    ('{"auths": {"hub": {"auth": "dXNlcjpwYXNz"}}}', "dXNlcjpwYXNz", '{"auth": "***"}'),
    ("'client_secret': 'q1w2'", "q1w2", "'client_secret': '***'"),
    ("os.environ['HF_TOKEN'] = 'x1'", "x1", "os.environ['HF_TOKEN'] = '***'"),
    (f"    client-key-data: LS0tLS1CRUdJTiBSU0Eg{LETTERS}", LETTERS, "    client-key-data: ***"),
    (f"tls.key: LS0tLS1CRUdJTiBQUklWQVRF{LETTERS}==", LETTERS, "tls.key: ***"),
    (f"<password>{LETTERS}</password>", LETTERS, "<password>***</password>"),
    ('<server><apiKey id="1">x 1</apiKey></server>', "x 1", '<apiKey id="1">***</apiKey>'),
    ('<add key="ClearTextPassword" value="hunter2" />', "hunter2", 'Password" value="***" />'),
    ("- name: DB_PASSWORD\n  value: hunter2", "hunter2", "- name: DB_PASSWORD\n  value: ***"),
    ('{"name": "HF_TOKEN", "value": "x1"}', "x1", '{"name": "HF_TOKEN", "value": "***"}'),
    (
        f"+ aws configure set aws_secret_access_key {BASE64}",
        BASE64,
        "aws configure set aws_secret_access_key ***",
    ),
    ("git config --global hub.token x1y2", "x1y2", "git config --global hub.token ***"),
    (f"the API key {HEX[:40]} is wrong", HEX[:40], "the API key *** is wrong"),
    (f'access token is "{HEX[:32]}"', HEX[:32], 'access token is "***"'),
    (f"MY_ACCESS_X={HEX[:32]}", HEX[:32], "MY_ACCESS_X=***"),
    (f"session_of_ann: '{HEX[:40]}'", HEX[:40], "session_of_ann: '***'"),
    ("app:$2b$12$abcdefghijklmnopqrstuvABCDEFGHIJKLMNOPQRSTUV012345678", "ABCDEFG", "app:***"),
]

WHOLE = [
    "sha256:4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1",
    "prom/prometheus@sha256:4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1",
    "task_memcg=/docker/85a2c6d12832fa0a6315014f8178b1c270398baf41131ca9b004e4eca7211327,task=dd",
    "4f66ad9a0b2e",
    "HEAD is now at 37724be8c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6 Lay out evidence",
    "commit=37724be8c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6",
    "GPU-8f1c2f3e-6f0a-4c52-9d8e-0a1b2c3d4e5f",
    "MIG-41d4d96e-4b0a-5c52-9d8e-0a1b2c3d4e5f",
    "run 6f1ed002-ab5c-4f4a-9d2e-1c3b5a7d9e0f started",
    "/var/lib/docker/containers/4f66ad9a/4f66ad9a-json.log",
    "/run/secrets/hf_token",
    "tokens per second: 123",
    "tokens_per_second=123.4",
    "tokenizer=bert",
    "--tokenizer meta-llama/Llama-3.1-8B",
    "max_tokens=512, max_new_tokens: 128",
    "loss=0.1 step=12 lr=3e-4",
    "num_key_value_heads: 8",
    "keys: 5",
    "eos_token: </s>, pad_token='[PAD]', bos_token='<s>'",
    "token='<|endoftext|>'",
    "pad_token_id=0 eos_token_id: 2",
    "token=None, use_auth_token=False",
    "next token: the",
    "unexpected token: expected a value",
    "KeyError: 'model.layers.0.weight'",
    "key: model.layers.0.self_attn.q_proj.weight",
    "sort_key=name primary_key=id",
    "forward_pass: 12 ms, backward_pass=0.3",
    "passes=3 compass: north monkey=1",
    "secretary: Ann",
    "token = load_token(path)",
    "password_file=/run/secrets/db",
    "--password-file /run/secrets/db --token-type jwt",
    "signature: (self, batch)",
    "author=ann authority=x",
    "write to ann@example.org",
    "git@github.com:acme/train.git",
    "ssh://git@github.com/acme/train.git",
    "http://registry:4873/@scope/package",
    "http://127.0.0.1:9200/metrics",
    "tcp://10.0.0.1:29500",
    "Basic authentication is off",
    "bearer token expired",
    "docker run -u 1000:1000 -p 8080:80 image",
    "RuntimeError: CUDA error: device-side assert triggered",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has",
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=4021, GPU has fallen off the bus.",
    "and your token has the required permissions.",
    "Invalid credentials in Authorization header",
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1234, OpType=ALLREDUCE)",
    "Killed process 3181 (dd) total-vm:67804kB, anon-rss:16000kB, UID:0 pgtables:72kB",
    'exec: "/etc/passwd": permission denied: unknown',
    "open /run/secrets/password: no such file or directory",
    "sk-learn-compatible-estimators",
    "NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=0,1 PYTHONUNBUFFERED=1",
    "-----BEGIN CERTIFICATE-----",
    "certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSURCVENDQWUy",
    "md5 d41d8cd98f00b204e9800998ecf8427e  model.bin",
    "ETag: 37724be8c1d2e3f4a5b6c7d8e9f0a1b2c3d4e5f6",
    "cache_key=4bcff63911fcb4448bd4fdacec207030997caf25e9bea4045fa6c8c44de311d1",
    "token_hash: 4bcff63911fcb4448bd4fdacec207030",
    "session=6f1ed002-ab5c-4f4a-9d2e-1c3b5a7d9e0f",
    "sentry_event_id=6f1ed002-ab5c-4f4a-9d2e-1c3b5a7d9e0f",
    "api_model=gpt-4o-mini-2024-07-18 api_version=2024-11-23-preview",
    "access_log=/var/log/nginx/access-2024-11-23.log",
    "run_key: resnet50_b64_lr0.1_s3_epoch12_step3400",
    "tokens/key_padding_mask: torch.Size([8, 1024])",
    "model_key: meta-llama/Llama-3.1-8B-Instruct",
    "cohere: CohereForAI/c4ai-command-r-plus-08-2024",
    "session: 2024-11-23T12-00-00Z",
    "tensor: data='AAAAAAAAgD8AAABAAABAQAAAgEAAAKBAAADAQAAA4EA='",
    "linear: 768x3072, twitter_roberta: cardiffnlp/twitter-roberta-base-sentiment",
    "Access to model mistralai/Mistral-7B-v0.1 is restricted.",
    "the API key is missing from the environment variables",
    "service token of projects/123456/x expired at 2024-11-23T12:00:00Z",
    "git config user.name ann; pip config set global.index-url http://pypi.example/simple",
    "<title>the secret</title> <think>token</think>",
    "- name: LEARNING_RATE\n  value: 0.1",
    "key=model value=meta-llama/Llama-3.1-8B",
    "checkpoint /data/run123/ckpt-000123.pt, Qwen2ForCausalLM, sd_xl_base_1.0.safetensors",
]


@pytest.mark.parametrize(("text", "secret", "rest"), SECRETS, ids=[row[0][:40] for row in SECRETS])
def test_secrets_are_masked(text, secret, rest):
    """A secret is masked, and the text around it is kept."""
    masked = mask_text(text)
    assert secret not in masked
    assert rest in masked


@pytest.mark.parametrize(("text", "secret", "rest"), SECRETS, ids=[row[0][:40] for row in SECRETS])
def test_secrets_are_masked_in_the_midst_of_a_log(text, secret, rest):
    """Secrets are masked in the lines of a log, and the other lines are kept."""
    masked = mask_lines(["epoch 3", *text.split("\n"), "loss 0.5"])
    assert masked[0] == "epoch 3"
    assert masked[-1] == "loss 0.5"
    assert len(masked) == 2 + len(text.split("\n"))
    assert secret not in "\n".join(masked)


@pytest.mark.parametrize("text", WHOLE)
def test_ordinary_text_stays_whole(text):
    """Ordinary text that resembles a secret is not changed."""
    assert mask_text(text) == text


@pytest.mark.parametrize("text", [text for text, _, _ in SECRETS])
def test_masking_twice_is_masking_once(text):
    """Masking a masked text again does not change it."""
    masked = mask_text(text)
    assert mask_text(masked) == masked


@pytest.mark.parametrize(
    ("words", "masked"),
    [
        (("python", "t.py", "--password", "a b"), ("python", "t.py", "--password", "***")),
        (("python", "t.py", "--token=a b"), ("python", "t.py", "--token=***")),
        (("docker", "run", "-e", "HF_TOKEN=x y"), ("docker", "run", "-e", "HF_TOKEN=***")),
        (("mysql", "-uroot", "-phunter2", "runs"), ("mysql", "-uroot", "-p***", "runs")),
        (("/usr/bin/mysqldump", "-phunter2"), ("/usr/bin/mysqldump", "-p***")),
        (("sshpass", "-p", "x", "ssh", "h"), ("sshpass", "-p", "***", "ssh", "h")),
        (("docker", "login", "-p", "x"), ("docker", "login", "-p", "***")),
        (("redis-cli", "-a", "x", "ping"), ("redis-cli", "-a", "***", "ping")),
        (("curl", "-u", "ann:x", "url"), ("curl", "-u", "ann:***", "url")),
        (("wandb", "login", "--relogin", HEX), ("wandb", "login", "--relogin", "***")),
        (("sh", "-c", "KEY=1 API_KEY=x python"), ("sh", "-c", "KEY=1 API_KEY=*** python")),
        (("sh", "-c", "mysql -px runs"), ("sh", "-c", "mysql -p*** runs")),
        (("curl", "-H", "X-Token: xy"), ("curl", "-H", "X-Token: ***")),
        (("x", "--api-key", "-starts-with-a-dash"), ("x", "--api-key", "***")),
    ],
)
def test_command_lines_are_masked_word_by_word(words, masked):
    """Secrets in the words of a command line are masked, and the number of words is kept."""
    assert mask_command(words) == masked


@pytest.mark.parametrize(
    "words",
    [
        ("python", "train.py", "--max-tokens", "512", "--tokenizer", "bert", "--seed", "1"),
        ("docker", "run", "-p8080:80", "-p", "3306:3306", "-u", "1000:1000", "mysql:8"),
        ("torchrun", "--nproc-per-node=8", "--rdzv-id", "4711", "train.py"),
        ("x", "--token", "--verbose"),
        ("x", "--password-file", "/run/secrets/db"),
        ("python", "-c", "import torch; print(torch.cuda.is_available())"),
        ("mkdir", "-p", "/checkpoints"),
        (),
    ],
)
def test_ordinary_command_lines_stay_whole(words):
    """Flags whose names resemble those of secrets keep their values."""
    assert mask_command(words) == words


def test_a_private_key_is_masked_line_by_line():
    """Each line of a private key is masked separately, so the number of lines is kept."""
    assert mask_text(f"a\n{PEM}\nb") == (
        "a\n-----BEGIN RSA PRIVATE KEY-----\n***\n***\n-----END RSA PRIVATE KEY-----\nb"
    )


def test_a_key_whose_first_line_was_cut_off_is_masked():
    """A line that consists only of long base64 text is masked as part of a key."""
    line = (LETTERS + LETTERS)[:64]
    assert mask_lines([line, "loss 0.5"]) == ("***", "loss 0.5")


def encode(text, *, every=True, times=1):
    """Return a text percent-encoded: all characters, or only those that URLs require."""
    for _ in range(times):
        text = "".join(f"%{byte:02x}" for byte in text.encode()) if every else quote(text, safe="")
        every = False
    return text


def decode(text):
    """Return a text without percent encoding."""
    return unquote(unquote(unquote(text)))


ENCODINGS = [{"every": every, "times": times} for every in (True, False) for times in (1, 2)]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize(
    "place",
    [
        "GET https://x.example/a?q={}&b=1",
        "GET https://x.example/a?next={}",
        "https://{}@x.example/",
        "{}",
        "100%|## | 50%5 {}",
    ],
)
def test_percent_encoding_hides_no_secret(place, encoding):
    """At least 98% of the kinds of secrets are masked if the whole text is percent-encoded."""
    kinds = list(list_kinds())
    missed = [
        kind.name
        for kind in kinds
        if any(
            _is_left(kind.secret, decode(mask_text(place.format(encode(line, **encoding)))))
            for line in kind.lines
        )
    ]
    assert len(missed) <= 0.02 * len(kinds), missed


PASSWORD = "hunter2!Xq9"


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://x.example/a?{}={}&b=1", ("password", PASSWORD)),
        ("https://x.example/a?{}", (f"password={PASSWORD}",)),
        ("https://x.example/a?{}={}", ("password", PASSWORD[::-1] + PASSWORD)),
        ("https://{}:{}@x.example/", ("ann", PASSWORD)),
        ("https://{}@x.example/", (f"ann:{PASSWORD}",)),
        ("https://x.example/?next={}", (f"https://ann:{PASSWORD}@y.example/?b=1",)),
        ("header={}", (f"Authorization: Bearer {PASSWORD}abcdefgh12345678",)),
        ("Authorization: Basic {}", ("YW5uOmh1bnRlcjIhWHE5",)),
        ("sent {} {}", ("Basic", "YW5uOmh1bnRlcjIhWHE5")),
        ("{}", (f"a\npassword: {PASSWORD}\nb",)),
    ],
)
def test_percent_encoding_hides_no_part(url, parts, encoding):
    """Secrets are masked if only the name, the value or the pair is percent-encoded."""
    masked = mask_text(url.format(*(encode(part, **encoding) for part in parts)))
    assert "hunter2" not in decode(masked)
    assert "YW5u" not in decode(masked)
    assert "***" in masked
    assert masked.count("\n") == 0
    assert mask_text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "https://x.example/a%20b/c%2Fd?name=r%C3%A9sum%C3%A9&x=%31%32",
        "100%25 done, 50%ab, %41, %%s",
        "model=meta-llama%2FLlama-3.1-8B",
        "epoch 1: 50%|#####     | 10/20",
    ],
)
def test_harmless_percent_signs_stay(text):
    """A text without a secret is not decoded."""
    assert mask_text(text) == text


@pytest.mark.parametrize("scheme", ["Basic", "basic", "Authorization: Basic", "auth=Basic"])
@pytest.mark.parametrize(
    "credentials",
    [
        "YW5uOmh1bnRlcjIhWHE5",
        "YW5uOmh1bnRlcjIhWHE5eA==",
        "YW5uOmh1bnRlcjIhWHE5eA",
        "YW5uOj8_Pz8-Pj5odW50ZXIyIVhxOQ",
    ],
)
def test_basic_credentials_are_masked(scheme, credentials):
    """Basic credentials are masked in both base64 alphabets, with and without padding."""
    assert credentials not in mask_text(f"sent {scheme} {credentials} to it")


FRAGMENTS = st.sampled_from(
    [row[0] for row in SECRETS]
    + [encode(row[0], **encoding) for row in SECRETS[:40] for encoding in ENCODINGS]
    + ["%", "25", "%25", "%2525", "%0a", "%41", "%c3"]
    + WHOLE
    + ["password", "token", "key", "=", ": ", " ", "'", '"', "\\", "\n", "-", "@", "://", "***"]
    + ["-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "Bearer ", "-u a:b", "eyJ"]
)
TEXTS = st.one_of(st.text(), st.lists(st.one_of(FRAGMENTS, st.text(max_size=5))).map("".join))


@given(TEXTS)
def test_any_text_can_be_masked(text):
    """Masking any text raises no exception, keeps the lines and triples the length at most."""
    masked = mask_text(text)
    assert len(masked) <= 3 * len(text)
    assert masked.count("\n") == text.count("\n")


@given(TEXTS)
@example("\x9b%43%4F%4F%4B%49E%3A0")  # The decoded text would continue an escape code.
@example("\x9b\x9bmA")
def test_any_masked_text_stays_as_it_is(text):
    """Masking any text twice gives the same result as masking it once."""
    masked = mask_text(text)
    assert mask_text(masked) == masked


@given(st.lists(st.one_of(TEXTS, st.sampled_from(["--password", "-p", "mysql", "login", "-u"]))))
def test_any_command_line_can_be_masked(words):
    """Masking a command line keeps the number of words, and a second pass changes nothing."""
    masked = mask_command(words)
    assert len(masked) == len(words)
    assert mask_command(masked) == masked


REPEATED = (
    "a|a.|://a:|password|token: |eyJ|-----BEGIN PRIVATE KEY-----|\\|'|A|mysql |Bearer |x=| |-|1|login |"
    '-u a|"key|<password>|name: a value: |api key |config a |\u00e9|cookie |eyJabcdef.|hf_'
    "|%|%2|%41|%2541|%25|%0a"
)


@pytest.mark.parametrize("part", REPEATED.split("|"))
def test_the_work_is_linear(part):
    """Masking a text of eight times the length takes less than 24 times as long."""
    text = part * (10_000 // len(part))

    def measure(text):
        start = time.thread_time()
        mask_text(text)
        return time.thread_time() - start

    short = min(measure(text) for _ in range(3))
    assert measure(text * 8) < 24 * short + 0.05


def test_kinds_of_secrets_are_masked():
    """At least 98% of the kinds of secrets that secret scanners detect are masked in every line."""
    missed = [
        kind.name
        for kind in list_kinds()
        if any(_is_left(kind.secret, mask_text(line)) for line in kind.lines)
    ]
    kinds = len(list(list_kinds()))
    assert kinds > 190
    assert len(missed) <= 0.02 * kinds, missed


CONTAINERS = {
    "colours": lambda text: f"\x1b[1;31m{text}\x1b[0m",
    "colours of 8 bits": lambda text: f"\x9b31m{text}\x9b0m",
    "a title": lambda text: f"\x1b]0;title\x07{text}",
    "colours in JSON": lambda text: f'{{"log": "\\u001b[31m{_escape(text)}\\u001b[0m"}}',
    "colours in octal": lambda text: f"'\\033[1;31m{_escape(text)}\\033[0m'",
    "a line break in JSON": lambda text: f'{{"log": "first\\n{_escape(text)}\\n"}}',
    "a tab in a repr": lambda text: f"'first\\t{_escape(text)}'",
    "a quotation mark in a repr": lambda text: f"'first \\x22{_escape(text)}\\x22'",
}


def _escape(text):
    return text.replace('"', '\\"')


@pytest.mark.parametrize("container", CONTAINERS)
def test_no_escape_hides_a_secret(container):
    """At least 98% of the kinds of secrets are masked after terminal codes and escapes."""
    kinds = list(list_kinds())
    missed = [
        kind.name
        for kind in kinds
        if any(_is_left(kind.secret, mask_text(CONTAINERS[container](x))) for x in kind.lines)
    ]
    assert len(missed) <= 0.02 * len(kinds), missed


@pytest.mark.parametrize(
    "before", ["\\n", "%22", "%3D", "my_", "x-", "\x1b[32m", "\\u001b[0m", "_"]
)
def test_tokens_are_masked_directly_after_what_ends_like_a_word(before):
    """At least 97% of the kinds of tokens are masked after an escape or the start of a name."""
    kinds = [kind for kind in list_kinds() if kind.lines[0].startswith("got ")]
    missed = [
        kind.name
        for kind in kinds
        if _is_left(kind.secret, mask_text(f"x={before}{kind.lines[0][4:]}"))
    ]
    assert len(kinds) > 100
    assert len(missed) <= 0.03 * len(kinds), missed


def test_words_in_the_middle_of_a_name_are_no_tokens():
    """Ordinary names that contain the prefix of a token are not masked."""
    for text in (
        "num_ops_per_second_per_device",
        "last_pat_of_each_worker_seen",
        "x-pat_size_and_more_words",
    ):
        assert mask_text(text) == text


PLACES = [
    "password: [{}, b{}]",
    '{{"passwords": ["{}", "b{}"]}}',
    "passwords:\n  - {}\n  - 'b{}'\n",
    "  db_password:\n  - {}\n  - b{}\n",
    "password: |\n  {}\n  b{}\n",
    "secret: >-\n  {}\n  b{}\n",
    "password:\n  {}b{}\n",
    "machine h\n  login ann\n  password {}{}\n",
    "machine h\nlogin ann\npassword {}{}\n",
    "machine h login ann\npassword {}{}",
    "ENV DB_PASSWORD {}{}",
    'ENV DB_PASSWORD "{}{}"',
    "('password', '{}{}')",
    '("DB_PASSWORD", "{}{}")',
    "password=SecretStr('{}{}')",
    'SecretStr("{}{}")',
    "SecretBytes(b'{}{}')",
    "{{'password': SecretStr('{}{}')}}",
    r"line one\npassword={}{}\n",
    r"\u001b[31mpassword={}{}\u001b[0m",
    "pass\x1b[1mword\x1b[0m=\x1b[32m{}{}\x1b[0m",
    "x%0Apassword={}{}",
]


@pytest.mark.parametrize("place", PLACES)
def test_named_secrets_are_masked_wherever_their_value_stands(place):
    """A value is masked in a list, a block, the next line, a pair, a call and after an escape."""
    masked = mask_text(place.format("hunter2", "hunter3") + "\nuser: ann")
    assert "hunter" not in masked
    assert masked.endswith("\nuser: ann")


def test_what_follows_an_empty_name_is_not_its_value():
    """A YAML key after a key without a value is not masked as its value."""
    for text in (
        "password:\nuser: ann",
        "  password:\n  user: ann",
        "secret:\n  name: runs\n",
        "tokens: [512, 1024]",
        'tokens: ["hello", "world"]',
        "tokens:\n  - hello\n",
    ):
        assert mask_text(text) == text


@pytest.mark.parametrize("prefix", ["", "    ", "12:00:01 INFO ", "trainer-1  | "])
def test_a_key_without_an_end_is_masked_behind_the_beginning_of_its_lines(prefix):
    """Each line of an unfinished key is masked after its prefix, and other lines are kept."""
    lines = [prefix + line for line in PEM.split("\n")[:3]]
    masked = mask_text("\n".join([*lines, f"{prefix}and so on"]))
    assert masked.split("\n") == [lines[0], f"{prefix}***", f"{prefix}***", f"{prefix}and so on"]


def _is_left(secret, masked):
    """Return whether 16 characters of a secret remain, or all characters of a shorter secret."""
    size = min(len(secret), 16)
    return any(secret[at : at + size] in masked for at in range(len(secret) - size + 1))


@pytest.mark.parametrize("size", [32, 40, 64])
@pytest.mark.parametrize("letters", ["0123456789abcdef", string.ascii_letters + string.digits])
def test_unknown_secrets_are_masked_near_a_word(size, letters):
    """Random text is masked if its name contains a word for secrets, and is kept otherwise."""
    chance = random.Random(size)
    secrets = ["".join(chance.choices(letters, k=size)) for _ in range(100)]
    assert (
        sum(mask_text(f"my_access_thing={each}") == "my_access_thing=***" for each in secrets) >= 97
    )
    assert all(mask_text(f"my_thing={each} x") == f"my_thing={each} x" for each in secrets)


def test_masks_are_recognizable():
    """A masked secret is replaced with `***`, so that the reader notices the masking."""
    assert re.fullmatch(r"HF_TOKEN=\*\*\*", mask_text("HF_TOKEN=abc"))


def test_a_line_of_a_key_without_the_prefix_of_the_first_is_masked_whole():
    """The first line of a key may follow other text, even if the next line has no such prefix."""
    first = "hf_0000000000000000-----BEGIN PRIVATE KEY-----"
    assert mask_text(f"{first}\nMIIE0001\n") == "***-----BEGIN PRIVATE KEY-----\n***\n"
    assert mask_text("a: -----BEGIN PRIVATE KEY-----\na: MIIE0001\n").endswith("\na: ***\n")
