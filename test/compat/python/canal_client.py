"""Canal's Python client: HOST PORT DESTINATION USER PASSWORD FILTER LAST [SEED]. Prints each row change that it has acknowledged, one a line of
fields between tabs as java/CanalClient does, until a row of the table LAST has come. With a seed it rolls back and reconnects now and then.
PORT may be a list, between commas: then it goes on at the next one whenever something fails, as programs on this client do."""

import base64
import random
import sys
import time

from canal.client import Client
from canal.protocol import EntryProtocol_pb2 as entries


def image(columns, after):
    fields = [str(len(columns))]
    for c in columns:
        fields += [c.name, "-" if c.isNull else base64.b64encode(c.value.encode()).decode()]
        fields += [("updated" if after and c.updated else "") + (" key" if c.isKey else ""), c.mysqlType, str(c.sqlType)]
    return fields


def lines(entry, change):
    kind = entries.EventType.Name(change.eventType)
    for row in change.rowDatas:
        fields = ["row", entry.header.schemaName, entry.header.tableName, kind]
        yield "\t".join(fields + image(row.beforeColumns, False) + image(row.afterColumns, True))


def main():
    host, ports, destination, user, password, filter, last = sys.argv[1:8]
    rng = random.Random(int(sys.argv[8])) if len(sys.argv) > 8 else None
    ports = [int(p) for p in ports.split(",")]

    def connect():
        client = Client()
        client.connect(host=host, port=ports[0])
        client.check_valid(username=user.encode(), password=password.encode())
        client.subscribe(client_id=b"1001", destination=destination.encode(), filter=filter.encode())
        return client

    def step(client):
        """Gets a batch, prints and acknowledges it; tells whether that was the last one."""
        message = client.get_without_ack(rng.choice([1, 5, 100]) if rng else 10)
        if not message["entries"]:
            time.sleep(0.01)
            return False, None
        if rng and rng.randrange(5) == 0:
            client.rollback(message["id"])
            return False, None
        out, done = [], False
        for entry in message["entries"]:
            if entry.entryType != entries.EntryType.ROWDATA:
                continue
            change = entries.RowChange()
            change.MergeFromString(entry.storeValue)
            out += lines(entry, change)
            done = done or entry.header.tableName == last
        client.ack(message["id"])
        for line in out:
            print(line)
        return done, message["entries"][-1].entryType == entries.EntryType.TRANSACTIONEND

    client, done = None, False
    between = True  # transactions: one that was acknowledged in part would come again whole
    while not done:
        try:
            if rng and client and between and rng.randrange(20) == 0:
                client.get_without_ack(1)  # whose answer says that the ack before has arrived
                client.disconnect()
                client = None
            client = client or connect()
            done, end = step(client)
            between = between if end is None else end
        except Exception:
            if len(ports) == 1:
                raise
            client = None
            ports.append(ports.pop(0))
            time.sleep(0.1)
    client.disconnect()


main()
