"""Patterns of secrets that are recognized in any position: tokens, keys, hashes, webhook URLs.

The prefixes and lengths are those of the services that issue the tokens, as listed by secret
detectors such as Gitleaks and detect-secrets. Every regular expression is matched in linear time.
"""

from __future__ import annotations

import re

# No pattern matches directly after a letter or digit, except after an escape sequence that ends
# with a letter or digit: `\n`, `%22`, `\u001b[0m`. Patterns that may match after `_` or `-` have a
# lookahead of limited length, so that no character is scanned repeatedly.
TOKENS = re.compile(
    r"""(?:(?<![A-Za-z0-9])|(?<=\\[abefnrtv0])|(?<=%[0-9A-Fa-f]{2})|(?<=\\x[0-9A-Fa-f]{2})
      |(?<=\\u[0-9A-Fa-f]{4})|(?<=[0-9[]m))(?:
    # with a prefix and _
    (?:hf|api_org|gh[pousr]|github_pat|npm|dckr_(?:pat|oat)|glsa|gsk|rpa|r8|shp(?:at|ca|pa|ss)
      |tvly|lsv2_[a-z]{2}|do[opr]_v1|wandb_v1|[srp]k_(?:live|test|prod)|whsec|sbp|lin_api|pat|pnu|ntn
      |rdme|rubygems|sntryu|sm_[aps]at|sgp|CLOJARS|shippo_(?:live|test))
      _[A-Za-z0-9_]{16,}
    |(?:glc|fm1[ar]|fm2|fo1|ops|sntrys|tfp|pscale_(?:tkn|oauth|pw)|duffel_(?:live|test))
      _[A-Za-z0-9_+/=.-]{16,}
    |(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][A-Za-z0-9+/_=.-]{30,}
    |[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk
    # with a prefix and -
    |(?:gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)|nvapi|pypi|xai|tskey-[a-z]+|GOCSPX
      |p8e|dnkey|fio-u|s-s4t2(?:ud|af)|NR(?:JS|II|AK)|pplx|PMAK|tk-us|xkeysib|sq0[a-z]{3}|HRKU)
      -[A-Za-z0-9_.-]{16,}
    |sk-(?=[A-Za-z_-]{0,48}[0-9])[A-Za-z0-9_-]{16,}
    |(?:pul-[0-9a-f]{40}|ico-[A-Za-z0-9]{32}|key-[0-9a-f]{32}|API-[A-Z0-9]{26}|[0-9a-f]{32}-us[0-9]{1,2})
      (?![A-Za-z0-9])
    |FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,}(?:-X)?
    |access-(?:sandbox|development|production)-[0-9a-f-]{36}
    |A3(?:-[A-Z0-9]{5,11}){5}
    |xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{8,}
    |xapp-[A-Za-z0-9-]{8,}
    |AGE-SECRET-KEY-1[A-Z0-9]{16,}
    # with a prefix alone
    |(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])(?::[A-Za-z0-9/+]{40})?
    |(?:ABSK|bedrock-api-key-)[A-Za-z0-9+/]{60,}={0,2}
    |(?:LTAI[A-Za-z0-9]{20}|4b1d[A-Za-z0-9]{38}|EZ[AT]K[A-Za-z0-9]{54}|SK[0-9a-f]{32}|dapi[0-9a-f]{32})
      (?![A-Za-z0-9])
    |(?:AKCp|cmVmdGtu)[A-Za-z0-9]{50,}
    |AP[0-9A-F](?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{16,}
    |AIza[A-Za-z0-9_-]{30,}
    |ATATT3[A-Za-z0-9_=-]{60,}
    |EAA[A-Za-z0-9_-]{22,}
    |GR1348941[A-Za-z0-9_-]{20}
    |AQVN[A-Za-z0-9_-]{35,}
    |sha256~[A-Za-z0-9_-]{43}
    # with dots and colons
    |ya29\.[A-Za-z0-9_-]{16,}
    |SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
    |hv[sbr]\.[A-Za-z0-9_-]{16,}
    |s\.(?=[A-Za-z]{0,24}[0-9])[A-Za-z0-9]{24}(?![A-Za-z0-9.])
    |dp\.[a-z]{2,6}\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}
    |dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}
    |(?:pat|sat)\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}
    |[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}
    |t1\.[A-Za-z0-9_-]{16,}={0,2}\.[A-Za-z0-9_-]{80,}={0,2}
    |v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}
    |[MNO](?=[A-Za-z_-]{0,27}[0-9])[A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}
    |(?:bot)?[0-9]{6,12}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])
    |[0-9]{15,16}(?:\||%7C)[A-Za-z0-9_-]{27,40}(?![A-Za-z0-9_-])
    |[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,}
    # in base64: JSON that begins with a name, once or twice, and a private key
    |eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)*
    |eyJ[A-Za-z0-9_+/-]{20,}={0,2}
    |ZXlK[A-Za-z0-9_+/-]{40,}={0,2}
    |LS0tLS1CRUdJTi(?!BDRVJU|BQVUJM|BUUlVTVEVE)[A-Za-z0-9+/]{20,}={0,2}
    )""",
    re.VERBOSE,
)
PASSWORD_HASHES = re.compile(r"\$(?:2[abxy]|[156y]|argon2[a-z]{1,2})\$[^\s:'\"]{20,}")
PUBLIC_KEYS = re.compile(r"\b((?:ssh|ecdsa|sk)-[a-z0-9@.-]{2,40} )AAAA[A-Za-z0-9+/=]{16,}")
KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
# The text of a key without an end marker: the rest of the marker's line, base64 lines, headers.
KEY_FIRST_LINE = re.compile(r"[^\n\"']*")
KEY_LINE = re.compile(r"[A-Za-z0-9+/=]+|[A-Z][A-Za-z-]+: [^\n]*|[ \t\r]*")
# A line of a key whose begin marker is missing: 60 to 76 base64 characters, which must include an
# upper-case letter, a lower-case letter and a digit.
KEY_LINES = re.compile(
    r"^(?=[^\na-z]*[a-z])(?=[^\nA-Z]*[A-Z])(?=[^\n0-9]*[0-9])[A-Za-z0-9+/]{60,76}={0,2}$",
    re.MULTILINE,
)
WEBHOOKS = re.compile(
    r"(hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/"
    r"|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/"
    r"|webhook\.office\.com/webhookb2/"
    r"|outlook\.office(?:365)?\.com/webhook/"
    r"|chat\.googleapis\.com/v1/spaces/"
    r"|hc-ping\.com/|oapi\.dingtalk\.com/robot/send\?"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/"
    r"|api\.softlayer\.com/soap/v[0-9.]{1,5}/"
    r"|logic\.azure\.com(?::[0-9]{1,5})?/workflows/)[^\s'\"<>]+",
    re.IGNORECASE,
)
