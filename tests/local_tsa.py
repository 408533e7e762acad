"""A time-stamping authority of our own: openssl makes the certificates and the stamps, loopback HTTP serves them.

`LocalTSA(folder)` makes a root and a certificate for time stamps under it; `with tsa.running(): ...` answers at
`tsa.url`. What it does wrong is set with `tsa.fault`, one of `FAULTS`, and with `weak=`; `tsa.root` is the file to
trust.
"""

import contextlib
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OPENSSL = shutil.which("openssl")
FAULTS = (
    "refuses",  # a proper answer that says no
    "refuses sha256",  # says no to this hash alone
    "500",
    "redirects",
    "garbage",
    "truncated",
    "too large",
    "drips",  # a byte at a time, without end
    "hangs up",
    "another digest",
    "wrong nonce",
    "no certificate",  # leaves out the certificate that was asked for
    "expired certificate",
    "certificate for something else",  # one without the usage timeStamping
    "signs with sha1",
)

_CONFIG = """
[ca]
default_ca = authority
[authority]
database = index.txt
serial = serial
new_certs_dir = .
certificate = root.pem
private_key = root.key
default_md = sha256
policy = names
unique_subject = no
[names]
commonName = supplied
organizationName = optional
[req]
distinguished_name = subject
[subject]
[root]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[intermediate]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[stamping]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
[mail]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, emailProtection
[tsa]
default_tsa = stamps
[stamps]
serial = stamp_serial
crypto_device = builtin
default_policy = 1.2.3.4.1
digests = {digests}
accuracy = secs:1, millisecs:500
signer_digest = {signer_digest}
ess_cert_id_alg = sha256
"""
_SHA256 = bytes.fromhex("0609608648016503040201")  # the object identifier, as DER has it
_TIME = re.compile(rb"\x18\x0f(\d{14})Z")  # a GeneralizedTime without fractions of a second


class LocalTSA:
    """A root, a time-stamping certificate under it and a service that stamps with it.

    Parameters
    ----------
    folder : Path
        Where the keys and certificates are made; each authority needs its own.
    name : str
        The common name of the time-stamping certificate.
    intermediate : bool
        Whether another authority stands between the root and the certificate; stamps carry it along.
    weak : dict
        What is weak about ``"root"``, ``"intermediate"`` or ``"tsa"``: ``"sha1"``, which it is signed with, or its
        key, as ``"RSA 1024"`` and ``"EC P-224"``.
    """

    def __init__(self, folder, name="Local TSA", intermediate=False, weak=()):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.name, self.fault, self.requests, self._weak = folder, name, None, [], dict(weak)
        self.time = None  # "20200601000000": what the stamps say, in place of the time it is
        self.root = folder / "root.pem"
        (folder / "index.txt").touch()
        for file in ("serial", "stamp_serial"):
            (folder / file).write_text("1001\n")
        self._configure()
        self._issue("root", f"Root of {name}", "root", "20190101000000Z", issuer=None)
        issuer = "root"
        if intermediate:
            self._issue("intermediate", f"Intermediate of {name}", "intermediate", "20190101000000Z", issuer)
            issuer = "intermediate"
        self.chain = ["-chain", "intermediate.pem"] if intermediate else []
        self._issue("tsa", name, "stamping", "20190101000000Z", issuer)

    def issue(self, kind):
        """Make the certificate of a fault, once: ``"expired"`` or ``"mail"``."""
        if not (self.folder / f"{kind}.pem").exists():
            if kind == "expired":
                self._issue(kind, self.name, "stamping", "20200101000000Z", until="20210101000000Z")
            else:
                self._issue(kind, self.name, "mail", "20190101000000Z")

    def stamp(self, query):
        """The DER response to a DER query, as ``fault`` has it."""
        fault, signer = self.fault, "tsa"
        if fault == "refuses" or (fault == "refuses sha256" and _SHA256 in query):
            return self._reply(query, digests="md5")
        if fault == "another digest":
            end = query.index(_SHA256) + len(_SHA256) + 4 + 32  # a NULL and the head of the octets stand between
            query = query[: end - 1] + bytes([query[end - 1] ^ 1]) + query[end:]
        elif fault == "wrong nonce":
            query = query[:-4] + bytes([query[-4] ^ 1]) + query[-3:]  # the wish for certificates ends it: 01 01 ff
        elif fault == "no certificate":
            query = b"\x30" + bytes([query[1] - 3]) + query[2:-3]
        elif fault == "signs with sha1":
            return self._reply(query, signer_digest="sha1")
        elif fault == "expired certificate":
            signer = "expired"
        elif fault == "certificate for something else":
            signer = "mail"
        if signer == "tsa" and self.time is None:
            return self._reply(query)
        if signer != "tsa":
            self.issue(signer)
        return self._sign_again(self._reply(query), signer)

    @contextlib.contextmanager
    def running(self):
        """Serve until the context ends."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}/stamp"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    # -- inside

    def _handler(self):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                query = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.headers["Content-Type"], query))
                fault = outer.fault
                if fault == "500":
                    self.send_error(500)
                elif fault == "redirects":
                    self.send_response(302)
                    self.send_header("Location", "/elsewhere")
                    self.end_headers()
                elif fault == "hangs up":
                    self.connection.close()
                elif fault == "drips":
                    self._drip()
                elif fault == "garbage":
                    self._send(b"<html>Welcome to the hotel's network</html>")
                elif fault == "too large":
                    self._send(bytes(4 * 1024 * 1024))
                elif fault == "truncated":
                    self._send(outer.stamp(query)[:200])
                else:
                    self._send(outer.stamp(query))

            def _send(self, content):
                self.send_response(200)
                self.send_header("Content-Type", "application/timestamp-reply")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the client may have had enough
                    self.wfile.write(content)

            def _drip(self):
                self.send_response(200)
                self.end_headers()
                with contextlib.suppress(OSError):
                    while outer.fault == "drips":
                        self.wfile.write(b"0")
                        self.wfile.flush()
                        threading.Event().wait(0.02)

            def log_message(self, *args):
                pass

        return Handler

    def _reply(self, query, **configuration):
        self._configure(**configuration)
        (self.folder / "query.tsq").write_bytes(query)
        self._run("ts", "-reply", "-config", "openssl.cnf", "-queryfile", "query.tsq", "-signer", "tsa.pem",
                  "-inkey", "tsa.key", *self.chain, "-out", "reply.tsr")  # fmt: skip
        return (self.folder / "reply.tsr").read_bytes()

    def _sign_again(self, response, signer):
        """The response with its content signed as CMS, since `openssl ts` signs with no certificate that is unfit."""
        (self.folder / "reply.tsr").write_bytes(response)
        self._run("ts", "-reply", "-config", "openssl.cnf", "-in", "reply.tsr", "-token_out", "-out", "token.der")
        self._run("cms", "-verify", "-noverify", "-inform", "DER", "-in", "token.der", "-out", "info.der")
        info = (self.folder / "info.der").read_bytes()
        if self.time is not None:
            info = _TIME.sub(b"\x18\x0f" + self.time.encode() + b"Z", info, count=1)
            (self.folder / "info.der").write_bytes(info)
        self._run("cms", "-sign", "-cades", "-binary", "-nodetach", "-econtent_type", "1.2.840.113549.1.9.16.1.4",
                  "-in", "info.der", "-signer", f"{signer}.pem", "-inkey", f"{signer}.key", "-md", "sha256",
                  "-outform", "DER", "-out", "token.der")  # fmt: skip
        content = bytes.fromhex("3003020100") + (self.folder / "token.der").read_bytes()  # status: granted
        return b"\x30\x82" + len(content).to_bytes(2, "big") + content

    def _issue(self, file, name, extensions, since, issuer="root", until="20491231000000Z"):
        self._make_key(file)
        self._run("req", "-new", "-key", f"{file}.key", "-subj", f"/O=Loopback/CN={name}", "-config", "openssl.cnf",
                  "-out", f"{file}.csr")  # fmt: skip
        signed_by = ["-cert", f"{issuer}.pem", "-keyfile", f"{issuer}.key"] if issuer else ["-selfsign"]
        digest = "sha1" if self._weak.get(file) == "sha1" else "sha256"
        self._run("ca", "-batch", "-notext", "-config", "openssl.cnf", "-extensions", extensions, "-startdate", since,
                  "-enddate", until, "-md", digest, *signed_by, "-in", f"{file}.csr", "-out",
                  f"{file}.pem")  # fmt: skip

    def _make_key(self, file):
        weak = self._weak.get(file, "sha1")
        algorithm, size = "EC P-256".split() if weak == "sha1" else weak.split()
        option = {"EC": "ec_paramgen_curve", "RSA": "rsa_keygen_bits"}[algorithm]
        self._run("genpkey", "-algorithm", algorithm, "-pkeyopt", f"{option}:{size}", "-out", f"{file}.key")

    def _configure(self, digests="sha256, sha384, sha512", signer_digest="sha256"):
        (self.folder / "openssl.cnf").write_text(_CONFIG.format(digests=digests, signer_digest=signer_digest))

    def _run(self, *arguments):
        done = subprocess.run([OPENSSL, *arguments], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"openssl {' '.join(arguments)}: {done.stderr}")
