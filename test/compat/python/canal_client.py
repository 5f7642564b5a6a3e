"""Canal's Python client: HOST PORT DESTINATION USER PASSWORD FILTER LAST SEED. Prints each row change that it has acknowledged, one a line of
fields between tabs as java/CanalClient does, until a row of the table LAST has come. It rolls back and reconnects now and then."""

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
    host, port, destination, user, password, filter, last = sys.argv[1:8]
    rng = random.Random(int(sys.argv[8]))

    def connect():
        client = Client()
        client.connect(host=host, port=int(port))
        client.check_valid(username=user.encode(), password=password.encode())
        client.subscribe(client_id=b"1001", destination=destination.encode(), filter=filter.encode())
        return client

    client, done = connect(), False
    between = True  # transactions: one that was acknowledged in part would come again whole
    while not done:
        if between and rng.randrange(20) == 0:
            client.get_without_ack(1)  # whose answer says that the ack before has arrived
            client.disconnect()
            client = connect()
        message = client.get_without_ack(rng.choice([1, 5, 100]))
        if not message["entries"]:
            time.sleep(0.01)
            continue
        if rng.randrange(5) == 0:
            client.rollback(message["id"])
            continue
        out = []
        for entry in message["entries"]:
            if entry.entryType != entries.EntryType.ROWDATA:
                continue
            change = entries.RowChange()
            change.MergeFromString(entry.storeValue)
            out += lines(entry, change)
            done = done or entry.header.tableName == last
        client.ack(message["id"])
        between = message["entries"][-1].entryType == entries.EntryType.TRANSACTIONEND
        for line in out:
            print(line)
    client.disconnect()


main()
