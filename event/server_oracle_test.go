//go:build integration

package event

import (
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
)

type oracleServer struct{ addr string }

func testServer(t *testing.T, kind string) oracleServer {
	return oracleServer{map[string]string{"mysql": "127.0.0.1:34101", "mariadb": "127.0.0.1:34102", "mariadb11": "127.0.0.1:34103"}[kind]}
}

func (s oracleServer) connect(t *testing.T) *client.Conn {
	t.Helper()
	c, err := client.Connect(s.addr, "root", "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func exec(t *testing.T, c *client.Conn, sql string) {
	t.Helper()
	if _, err := c.Execute(sql); err != nil {
		t.Fatalf("%v\n%.300s", err, sql)
	}
}
