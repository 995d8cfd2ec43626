"""A lock over HTTP, with Python's standard library: python3 client.py NAME"""
import json, os, sys, urllib.error, urllib.parse, urllib.request

SERVER = os.environ.get("TENURE_SERVER", "http://127.0.0.1:7878")
TOKEN = os.environ.get("TENURE_SERVE_TOKEN")


def call(name, operation, **body):
    url = f"{SERVER}/v1/locks/{urllib.parse.quote(name, safe='')}/{operation}"
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    if TOKEN:
        request.add_header("Authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


name = sys.argv[1]
try:
    lock = call(name, "acquire", wait_ms=10_000, lease_ms=30_000, note="client.py")
except urllib.error.HTTPError as error:
    sys.exit(json.load(error)["detail"])
try:
    print(f"held with fence {lock['fence']}", flush=True)
    sys.stdin.readline()  # the work; call renew before lease_ms is over
    call(name, "renew", handle=lock["handle"])
finally:
    call(name, "release", handle=lock["handle"])
print("released")
