package connector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// errReplaced is a stream that the source has ended for that of another replica with our identity.
var errReplaced = errors.New("the source has cut our stream, and another connection has our identity")

// checkIdentity stops if our server id is somebody else's. listed: a connection with our whole identity is there.
func (c *Connector) checkIdentity(ctx context.Context, s *session, sv *server, id identity) (listed bool, err error) {
	remedy := "give this destination a source.server_id that no server and no replica uses"
	if id.serverID == sv.id {
		return false, c.stop(fmt.Sprintf("our server id %d is the source's own", id.serverID), remedy, nil)
	}
	r, err := s.query(ctx, "SHOW REPLICAS")
	if serverCode(err) == mysql.ER_PARSE_ERROR {
		r, err = s.query(ctx, "SHOW SLAVE HOSTS")
	}
	if serverCode(err) == mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR {
		return false, nil // MariaDB asks for REPLICATION MASTER ADMIN; there a clash shows by evictions
	}
	if err != nil {
		return false, err
	}
	for i := range r.rows() {
		n, _ := strconv.ParseUint(r.named(i, "Server_Id"), 10, 32)
		if uint32(n) != id.serverID {
			continue
		}
		uuid, host := r.named(i, "Replica_UUID", "Slave_UUID"), r.named(i, "Host")
		// An entry of ours is a connection that the source has not given up yet.
		if uuid != "" && !strings.EqualFold(uuid, id.uuid) || uuid == "" && host != id.host {
			return false, c.stop(fmt.Sprintf("our server id %d is in use by another replica (host %q, UUID %q)", id.serverID, host, uuid), remedy, nil)
		}
		listed = true
	}
	return listed, nil
}
