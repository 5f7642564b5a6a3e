//go:build integration

package compat

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestFlinkConditions shows what a table declared in Flink SQL must heed: rules of
// Flink's for any message of these formats.
func TestFlinkConditions(t *testing.T) {
	const refused = "refused"
	tests := []struct {
		name, format, row, value string
		want                     string // the kind and the column v of each row, or refused
	}{
		// "" is a tombstone.
		{"a tombstone is passed over", "canal-json", "INT", "", ""},
		{"a tombstone is passed over", "maxwell", "INT", "", ""},
		{"a tombstone is passed over", "debezium", "INT", "", ""},
		{"DDL stops the job", "canal-json", "INT", `{"data":null,"database":"s","isDdl":true,"sql":"ALTER TABLE t ADD c INT","table":"t","type":"ALTER"}`, refused},
		{"DDL stops the job", "maxwell", "INT", `{"type":"table-alter","database":"s","table":"t","ts":1700000000000,"sql":"ALTER TABLE t ADD c INT"}`, refused},
		{"DDL stops the job", "debezium", "INT", `{"source":{},"ts_ms":1,"databaseName":"s","schemaName":null,"ddl":"ALTER TABLE t ADD c INT","tableChanges":[]}`, refused},
		{"CREATE is passed over", "canal-json", "INT", `{"data":null,"database":"s","isDdl":true,"sql":"CREATE TABLE t (v INT)","table":"t","type":"CREATE"}`, ""},
		{"TINYINT(1) is a number", "canal-json", "TINYINT", canalInsert(`"1"`), "+I 1"},
		{"TINYINT(1) as BOOLEAN is always false", "canal-json", "BOOLEAN", canalInsert(`"1"`), "+I false"},
		{"TINYINT(1) as BOOLEAN is always false", "maxwell", "BOOLEAN", maxwellInsert(`1`), "+I false"},
		{"TINYINT(1) as BOOLEAN is always false", "debezium", "BOOLEAN", debeziumInsert(`1`), "+I false"},
		{"BIT(1) is a BOOLEAN", "debezium", "BOOLEAN", debeziumInsert(`true`), "+I true"},
		{"bytes need binary: base64", "canal-json", "BYTES", canalInsert(`"AP+A"`), "+I 00ff80"},
		{"bytes in latin1 are text", "canal-json", "STRING", canalInsert("\"\\u0000\u00ff\u0080\""), "+I \x00\u00ff\u0080"},
		{"bytes in latin1 are no BYTES", "canal-json", "BYTES", canalInsert("\"\\u0000\u00ff\u0080\""), refused},
		{"all digits of a DECIMAL", "maxwell", "DECIMAL(38,10)", maxwellInsert(`1234567890123456789012345678.0123456789`), "+I 1234567890123456789012345678.0123456789"},
		{"all digits of a BIGINT UNSIGNED", "maxwell", "DECIMAL(20,0)", maxwellInsert(`18446744073709551615`), "+I 18446744073709551615"},
		{"BIGINT UNSIGNED is no BIGINT", "canal-json", "BIGINT", canalInsert(`"18446744073709551615"`), refused},
		{"BIGINT UNSIGNED is no BIGINT", "maxwell", "BIGINT", maxwellInsert(`18446744073709551615`), refused},
		{"a DECIMAL needs decimal.handling.mode: string or double", "debezium", "DECIMAL(12,2)", debeziumInsert(`"AJY="`), refused},
		{"all digits of a DECIMAL", "debezium", "DECIMAL(38,10)", debeziumInsert(`"1234567890123456789012345678.0123456789"`), "+I 1234567890123456789012345678.0123456789"},
		{"all digits of a DECIMAL", "debezium", "DECIMAL(38,10)", debeziumInsert(`1234567890123456789012345678.0123456789`), "+I 1234567890123456789012345678.0123456789"},
		{"all digits of a BIGINT UNSIGNED", "debezium", "DECIMAL(20,0)", debeziumInsert(`18446744073709551615`), "+I 18446744073709551615"},
		{"BIGINT UNSIGNED is no BIGINT", "debezium", "BIGINT", debeziumInsert(`18446744073709551615`), refused},
		{"dates and times are numbers", "debezium", "BIGINT", debeziumInsert(`1704164645123400`), "+I 1704164645123400"},
		{"dates and times are numbers", "debezium", "DATE", debeziumInsert(`19782`), refused},
		{"bytes", "debezium", "BYTES", debeziumInsert(`"AP+A"`), "+I 00ff80"},
		{"a TIMESTAMP is text", "debezium", "STRING", debeziumInsert(`"2024-01-31T10:00:00.500Z"`), "+I 2024-01-31T10:00:00.500Z"},
		{"messages with schema need schema-include", "debezium", "INT", `{"schema":{},"payload":` + debeziumInsert(`1`) + `}`, refused},
		{"messages with schema need schema-include", "debezium+schema", "INT", `{"schema":{},"payload":` + debeziumInsert(`1`) + `}`, "+I 1"},
		{"an update has both rows", "debezium", "INT", `{"before":{"v":null},"after":{"v":1},"op":"u"}`, "-U NULL, +U 1"},
		{"an update of an unknown row stops the job", "debezium", "INT", `{"before":null,"after":{"v":1},"op":"u"}`, refused},
		{"a JSON document is text", "canal-json", "STRING", canalInsert(`"{\"a\": [1, 2.50]}"`), `+I {"a": [1, 2.50]}`},
		{"a JSON document is nested", "maxwell", "STRING", maxwellInsert(`{"a":[1,2.5]}`), `+I {"a":[1,2.5]}`},
		{"a SET is an array", "maxwell", "ARRAY<STRING>", maxwellInsert(`["x","z"]`), "+I x,z"},
		{"a TIME of more than a day needs STRING", "canal-json", "TIME(0)", canalInsert(`"25:00:00"`), refused},
		{"a TIME of more than a day needs STRING", "canal-json", "STRING", canalInsert(`"-838:59:59"`), "+I -838:59:59"},
		{"a zero date needs STRING", "maxwell", "DATE", maxwellInsert(`"0000-00-00"`), refused},
		{"a zero date needs STRING", "maxwell", "STRING", maxwellInsert(`"0000-00-00"`), "+I 0000-00-00"},
		{"a partial date needs STRING", "canal-json", "TIMESTAMP(3)", canalInsert(`"2024-01-00 10:00:00"`), refused},
		{"a TIMESTAMP is none of a zone", "canal-json", "TIMESTAMP(3)", canalInsert(`"2024-01-31 10:00:00.5"`), "+I 2024-01-31 10:00:00.500000"},
		{"a TIMESTAMP is none of a zone", "canal-json", "TIMESTAMP_LTZ(3)", canalInsert(`"2024-01-31 10:00:00.5"`), refused},
		{"a TIMESTAMP is none of a zone", "maxwell", "TIMESTAMP_LTZ(3)", maxwellInsert(`"2024-01-31 10:00:00.5"`), refused},
		{"NULL before and after", "canal-json", "INT", `{"data":[{"v":null}],"database":"s","es":1,"isDdl":false,"old":[{"v":"1"}],"table":"t","ts":1,"type":"UPDATE"}`, "-U 1, +U NULL"},
		{"NULL before and after", "maxwell", "INT", `{"database":"s","table":"t","type":"update","ts":1,"data":{"v":1},"old":{"v":null}}`, "-U NULL, +U 1"},
		{"nothing changed", "canal-json", "INT", `{"data":[{"v":"1"}],"database":"s","es":1,"isDdl":false,"old":[{}],"table":"t","ts":1,"type":"UPDATE"}`, "-U 1, +U 1"},
		{"nothing changed", "maxwell", "INT", `{"database":"s","table":"t","type":"update","ts":1,"data":{"v":1},"old":{}}`, "-U 1, +U 1"},
		{"a snapshot's row is an insert", "debezium", "INT", `{"before":null,"after":{"v":1},"source":{"snapshot":"incremental","db":"s","table":"t","gtid":null},"op":"r","ts_ms":1}`, "+I 1"},
		{"a snapshot's row stops the job", "maxwell", "INT", `{"database":"s","table":"t","type":"bootstrap-insert","ts":1,"data":{"v":1}}`, refused},
	}
	var args, input []string
	seen := map[string]bool{}
	for _, tt := range tests {
		if arg := tt.format + "|" + tt.row + "|ROW<v " + tt.row + ">"; !seen[arg] {
			seen[arg] = true
			args = append(args, arg)
		}
		value := "null"
		if tt.value != "" {
			value = encode([]byte(tt.value))
		}
		input = append(input, tt.format+" "+tt.row+" "+value)
	}
	lines := java(t, flink, "FlinkReader", input, args...)
	if len(lines) != len(tests) {
		t.Fatalf("%d answers to %d messages", len(lines), len(tests))
	}
	for i, tt := range tests {
		var no struct{ Refused []byte }
		var rows []struct {
			Kind string
			Row  struct{ V *[]byte }
		}
		var got []string
		if json.Unmarshal(lines[i], &no) == nil && no.Refused != nil {
			got = []string{refused}
		} else if err := json.Unmarshal(lines[i], &rows); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			v := "NULL"
			if r.Row.V != nil {
				v = string(*r.Row.V)
			}
			got = append(got, r.Kind+" "+v)
		}
		if g := strings.Join(got, ", "); g != tt.want {
			t.Errorf("%s, %s as %s: %q, want %q; %s", tt.name, tt.format, tt.row, g, tt.want, no.Refused)
		}
	}
}

func canalInsert(v string) string {
	return `{"data":[{"v":` + v + `}],"database":"s","es":1,"isDdl":false,"old":null,"table":"t","ts":1,"type":"INSERT"}`
}

func debeziumInsert(v string) string {
	return `{"before":null,"after":{"v":` + v + `},"source":{"db":"s","table":"t"},"op":"c","ts_ms":1}`
}

func maxwellInsert(v string) string {
	return `{"database":"s","table":"t","type":"insert","ts":1,"data":{"v":` + v + `}}`
}
