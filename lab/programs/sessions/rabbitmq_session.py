"""RabbitMQ: a message for each number in a durable queue of the kind that is named, with publisher confirms."""

import logging
import sys

import pika
from protocol import PAYLOAD, retried, serve


class Store:
    def __init__(self, port: str, kind: str):
        self.channel = retried(lambda: pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(port), heartbeat=0))).channel()
        self.channel.confirm_delivery()
        # A queue has a leader a little later than the server is ready.
        retried(lambda: self.channel.queue_declare("lab", durable=True, arguments={"x-queue-type": kind}))

    def write(self, number: int) -> None:
        # Returns when it is confirmed, and raises an error when it is refused.
        persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent.value)
        self.channel.basic_publish("", "lab", f"{number} {PAYLOAD}".encode(), persistent, mandatory=True)

    def numbers(self) -> list[int]:
        """All messages, which go back into the queue with the channel that they were given to."""
        channel = self.channel.connection.channel()
        found = []
        for method, _, body in channel.consume("lab", inactivity_timeout=3):
            if method is None:
                break
            found.append(int(body.split()[0]))
        channel.close()
        return found


logging.disable()
serve(Store(sys.argv[1], sys.argv[2]))
