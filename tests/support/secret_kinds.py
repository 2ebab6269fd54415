"""The kinds of secrets that maintained detectors know, with made-up texts in their formats.

The kinds are those of Gitleaks 8 and detect-secrets 1.5, without public identifiers, public keys
and secrets that are whole files. A form is a text in which `<x32>` stands for 32 hexadecimal
digits; `_SETS` defines the other letters. If a form contains `^`, its secret part begins after the
first `^` and ends before the second.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

_SETS = {
    "x": "0123456789abcdef",
    "X": "0123456789ABCDEF",
    "d": string.digits,
    "l": string.ascii_lowercase + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "a": string.ascii_letters + string.digits,
    "t": string.ascii_letters,
    "w": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
}
_PLACE = re.compile(r"<([xXdluatwb])(\d+)>")
_UUID = "<x8>-<x4>-<x4>-<x4>-<x12>"

# Secrets that are recognisable by their form in any context.
FORMS = f"""
1password-service-account-token ops_eyJ<b252>
1password-secret-key A3-<u6>-<u11>-<u5>-<u5>-<u5>
adobe-client-secret p8e-<l32>
age-secret-key AGE-SECRET-KEY-1<u58>
alibaba-access-key-id LTAI<l20>
anthropic-api-key sk-ant-api03-<w93>AA
artifactory-api-key AKCp<a69>
artifactory-reference-token cmVmdGtu<a56>
artifactory-password AP5<a20>
atlassian-api-token ATATT3<w186>
authress-service-client-access-key sc_<l12>.<l5>.acc_<l16>.<b60>
aws-access-token AKIA<u16>
aws-secret-key-after-id AKIA<u16>:<b40>
aws-bedrock-long-lived ABSK<b120>
azure-ad-client-secret <a3>8Q~<a34>
azure-storage-key AccountKey=^<b86>==
clickhouse-cloud-api-secret-key 4b1d<a38>
clojars-api-token CLOJARS_<l60>
cloudflare-origin-ca-key v1.0-<x24>-<x146>
databricks-api-token dapi<x32>
defined-networking-api-token dnkey-<l26>-<l52>
digitalocean-access-token doo_v1_<x64>
digitalocean-pat dop_v1_<x64>
digitalocean-refresh-token dor_v1_<x64>
discord-bot-token MTk<a21>.<w6>.<w27>
doppler-api-token dp.pt.<l43>
doppler-service-token dp.st.prod.<l43>
duffel-api-token duffel_live_<w43>
dynatrace-api-token dt0c01.<u24>.<u64>
easypost-api-token EZAK<l54>
easypost-test-api-token EZTK<l54>
facebook-access-token <d15>|<w27>
facebook-page-access-token EAAC<a120>
flutterwave-encryption-key FLWSECK_TEST-<x12>
flutterwave-secret-key FLWSECK_TEST-<x32>-X
flyio-access-token fo1_<w43>
flyio-macaroon fm2_<b120>
frameio-api-token fio-u-<w64>
gcp-api-key AIza<w35>
gcp-oauth-token ya29.<w100>
github-app-token ghs_<a36>
github-fine-grained-pat github_pat_<a82>
github-oauth gho_<a36>
github-pat ghp_<a36>
github-refresh-token ghr_<a36>
gitlab-cicd-job-token glcbt-<a4>_<w20>
gitlab-deploy-token gldt-<w20>
gitlab-feature-flag-client-token glffct-<w20>
gitlab-feed-token glft-<w20>
gitlab-incoming-mail-token glimt-<w25>
gitlab-kubernetes-agent-token glagent-<w50>
gitlab-oauth-app-secret gloas-<w64>
gitlab-pat glpat-<w20>
gitlab-pat-routable glpat-<w27>.01<l7>
gitlab-ptt glptt-<x40>
gitlab-rrt GR1348941<w20>
gitlab-runner-authentication-token glrt-<w20>
gitlab-scim-token glsoat-<w20>
gitlab-session-cookie _gitlab_session=^<l32>
google-oauth-secret GOCSPX-<w28>
grafana-api-key eyJrIjoi<a80>
grafana-cloud-api-token glc_<a64>
grafana-service-account-token glsa_<a32>_<x8>
groq-api-key gsk_<a52>
harness-api-key pat.<w22>.<a24>.<a20>
hashicorp-tf-api-token <a14>.atlasv1.<w64>
heroku-api-key-v2 HRKU-AA<w58>
huggingface-access-token hf_<t34>
huggingface-organization-api-token api_org_<t34>
infracost-api-token ico-<a32>
intra42-client-secret s-s4t2ud-<x64>
jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0<a20>.<w43>
jwt-base64 ZXlKaGJHY2lPaUpJVXpJMU5pSjk<a60>
langsmith-api-key lsv2_pt_<x32>_<x10>
linear-api-key lin_api_<a40>
mailchimp-key <x32>-us12
mailgun-private-api-token key-<x32>
maxmind-license-key <a6>_<a29>_mmk
microsoft-teams-webhook https://acme.webhook.office.com/webhookb2/^{_UUID}@{_UUID}/IncomingWebhook/<x32>/{_UUID}
new-relic-browser-api-token NRJS-<x19>
new-relic-insert-key NRII-<l32>
new-relic-user-api-key NRAK-<u27>
notion-api-token ntn_<d11><a35>
npm-access-token npm_<a36>
nvidia-api-key nvapi-<w64>
octopus-deploy-api-key API-<u26>
openai-api-key sk-<a20>T3BlbkFJ<a20>
openai-project-key sk-proj-<w58>T3BlbkFJ<w58>
openshift-user-token sha256~<w43>
perplexity-api-key pplx-<a48>
plaid-api-token access-production-{_UUID}
planetscale-api-token pscale_tkn_<w43>
planetscale-oauth-token pscale_oauth_<w43>
planetscale-password pscale_pw_<w43>
postman-api-token PMAK-<x24>-<x34>
prefect-api-token pnu_<a36>
pulumi-api-token pul-<x40>
pypi-upload-token pypi-AgEIcHlwaS5vcmc<w70>
readme-api-token rdme_<l70>
replicate-api-token r8_<a37>
rubygems-api-token rubygems_<x48>
scalingo-api-token tk-us-<w48>
sendgrid-api-token SG.<w22>.<w43>
sendinblue-api-token xkeysib-<x64>-<l16>
sentry-org-token sntrys_eyJpYXQiO<a60>LCJyZWdpb25fdXJs<a40>_<b43>
sentry-user-token sntryu_<x64>
settlemint-application-access-token sm_aat_<a16>
settlemint-personal-access-token sm_pat_<a16>
shippo-api-token shippo_live_<x40>
shopify-access-token shpat_<x32>
shopify-custom-access-token shpca_<x32>
shopify-private-app-access-token shppa_<x32>
shopify-shared-secret shpss_<x32>
sidekiq-sensitive-url https://<x8>:^<x8>^@gems.contribsys.com/x
slack-app-token xapp-1-<u11>-<d13>-<x64>
slack-bot-token xoxb-<d12>-<d12>-<a24>
slack-config-access-token xoxe.xoxb-1-<u165>
slack-config-refresh-token xoxe-1-<u146>
slack-legacy-token xoxs-<d10>-<d10>-<d10>-<x10>
slack-user-token xoxp-<d12>-<d12>-<d12>-<a30>
slack-webhook-url https://hooks.slack.com/services/T<u9>/B<u9>/^<a24>
softlayer-url https://api.softlayer.com/soap/v3/^<l64>
sourcegraph-access-token sgp_<x16>_<x40>
square-access-token EAAA<w60>
square-oauth-secret sq0csp-<w43>
square-personal-token sq0atp-<w22>
stripe-access-token sk_live_<a24>
telegram-bot-api-token <d9>:A<w34>
twilio-api-key SK<x32>
typeform-api-token tfp_<w59>
vault-batch-token hvb.<w140>
vault-service-token hvs.<w95>
vault-legacy-token s.<a22>4F
yandex-access-token t1.<w40>.<w86>
yandex-api-key AQVN<w36>
xai-api-key xai-<a80>
"""

# Secrets that are recognisable only by the name of a service before them.
NAMED = f"""
adafruit <l32>
airtable <l17>
algolia <l32>
alibaba <l30>
asana <l32>
atlassian <a24>
beamer b_<w44>
bitbucket <l64>
bittrex <l32>
meraki <x40>
cloudant <x64>
cloudflare <w40>
codecov <l32>
cohere <a40>
coinbase <w64>
confluent <l64>
contentful <w43>
datadog <l40>
discord <x64>
droneci <l32>
dropbox sl.<w135>
etsy <l24>
facebook <x32>
fastly <w32>
finicity <l20>
finnhub <l20>
flickr <l32>
freshbooks <l64>
gitter <w40>
gocardless live_<w40>
heroku {_UUID}
hubspot {_UUID}
ibm_cloud_iam <w44>
ibm_cos_hmac <x48>
intercom <w60>
artifactory <l73>
jfrog <l64>
kraken <b86>
kucoin {_UUID}
launchdarkly <w40>
linkedin <l16>
lob live_<x35>
mailgun <x32>-<x8>-<x8>
mapbox pk.<l60>.<l22>
mattermost <l26>
messagebird <l25>
netlify <w43>
newrelic <l64>
nytimes <w32>
okta 00<w40>
plaid <l30>
private_ai <l32>
rapidapi <w50>
sendbird <x40>
sentry <x64>
snyk_token {_UUID}
softlayer <l64>
sonar_login <l40>
squarespace {_UUID}
sumologic <a64>
travis <a22>
twilio <x32>
twitch <l30>
twitter <d18>-<a40>
yandex YC<w38>
zendesk <a40>
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of secret.

    Attributes:
        name: The name of the kind, after the detector.
        secret: An example of the kind.
        lines: Lines that contain the example.
    """

    name: str
    secret: str
    lines: tuple[str, ...]


def list_kinds(seed: int = 0) -> Iterator[Kind]:
    """Yield a secret of each kind, with lines that resemble logs and settings."""
    chance = random.Random(seed)
    for row in FORMS.strip().splitlines():
        name, form = row.split(" ")
        before, secret, after = _fill(form, chance)
        whole = before + secret + after
        yield Kind(name, secret, (f"got {whole} back", f'"x": "{whole}",', f"run X={whole}"))
    for row in NAMED.strip().splitlines():
        name, form = row.split(" ")
        _, secret, _ = _fill(form, chance)
        lines = (f"{name.upper()}={secret}", f'"{name}": "{secret}",', f"my_{name}_x = '{secret}'")
        yield Kind(name, secret, lines)


def _fill(form: str, chance: random.Random) -> tuple[str, str, str]:
    """Return the text before the secret, the secret, and the text after the secret."""
    text = _PLACE.sub(lambda m: "".join(chance.choices(_SETS[m[1]], k=int(m[2]))), form)
    before, mark, rest = text.partition("^")
    secret, _, after = rest.partition("^")
    return (before, secret, after) if mark else ("", text, "")
