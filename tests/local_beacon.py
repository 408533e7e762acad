"""A stand-in for the NIST randomness beacon: pulses of the same form, signed by a key of its own."""

import hashlib
import struct
from datetime import UTC, datetime, timedelta

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from drw_hf.keys import Round


def _sized(content):
    return struct.pack(">I", len(content)) + content


class LocalBeacon:
    """Draws a pulse a minute; the same time gives the same pulse."""

    def __init__(self, chain=2, bits=2048):
        self.chain = chain
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
        name = x509.Name.from_rfc4514_string("CN=engine.beacon.example")
        builder = x509.CertificateBuilder(
            name, name, self.key.public_key(), 1, datetime(2020, 1, 1), datetime(2099, 1, 1)
        )
        signed = builder.sign(self.key, hashes.SHA256())
        self.certificate = signed.public_bytes(Encoding.PEM)
        self.certificate_id = hashlib.sha512(signed.public_bytes(Encoding.DER)).hexdigest()

    def round(self, time):
        """The round at a time."""
        return Round.at("nist", time, certificate=self.certificate, chain=str(self.chain))

    def pulse(self, time, **changes):
        """What the beacon publishes for a time; with ``changes``, signed all the same."""
        minute = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()) // 60
        generator = np.random.default_rng(minute)
        random = [generator.bytes(64).hex().upper() for _ in range(7)]
        uri = f"https://beacon.example/beacon/2.0/chain/{self.chain}/pulse/{minute}"
        before = zip(("previous", "hour", "day", "month", "year"), random[2:], strict=True)
        stamp = datetime.fromtimestamp(0, UTC) + timedelta(minutes=minute)
        pulse = {
            "uri": uri,
            "version": "Version 2.0",
            "cipherSuite": 0,
            "period": 60000,
            "certificateId": self.certificate_id,
            "chainIndex": self.chain,
            "pulseIndex": minute,
            "timeStamp": f"{stamp:%Y-%m-%dT%H:%M:%S}.000Z",
            "localRandomValue": random[0],
            "external": {"sourceId": "0" * 128, "statusCode": 0, "value": "0" * 128},
            "listValues": [{"uri": uri, "type": kind, "value": value} for kind, value in before],
            "precommitmentValue": random[1],
            "statusCode": 0,
            **changes,
        }
        signed = self.message(pulse)
        signature = self.key.sign(signed, padding.PKCS1v15(), hashes.SHA512())
        output = hashlib.sha512(signed + signature).hexdigest().upper()
        return {"pulse": {**pulse, "signatureValue": signature.hex().upper(), "outputValue": output}}

    @staticmethod
    def message(pulse):
        """What is signed of a pulse, as NIST describes it: transcribed apart from the package."""
        external = pulse["external"]
        parts = [_sized(pulse[name].encode()) for name in ("uri", "version")]
        parts += [pulse["cipherSuite"].to_bytes(4, "big"), pulse["period"].to_bytes(4, "big")]
        parts += [_sized(bytes.fromhex(pulse["certificateId"]))]
        parts += [pulse["chainIndex"].to_bytes(8, "big"), pulse["pulseIndex"].to_bytes(8, "big")]
        parts += [_sized(pulse["timeStamp"].encode()), _sized(bytes.fromhex(pulse["localRandomValue"]))]
        parts += [_sized(bytes.fromhex(external["sourceId"])), external["statusCode"].to_bytes(4, "big")]
        parts += [_sized(bytes.fromhex(external["value"]))]
        parts += [_sized(bytes.fromhex(each["value"])) for each in pulse["listValues"]]
        parts += [_sized(bytes.fromhex(pulse["precommitmentValue"])), pulse["statusCode"].to_bytes(4, "big")]
        return b"".join(parts)
