package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"
)

// Load reads the file, expands ${NAME} from the environment, applies the
// defaults and validates. The error joins every fault found.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w (give its path with -c; config.yaml.example is a start)", err)
	}
	c, err := Parse(data, os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("configuration %s:\n%w", path, err)
	}
	return c, nil
}

// Parse is Load on bytes, with the environment given as a function.
func Parse(data []byte, env func(string) (string, bool)) (*Config, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("not valid YAML: %w", err)
	}
	if len(doc.Content) == 0 {
		return nil, errors.New("the file is empty: destinations are needed")
	}
	c := new(Config)
	d := decoder{env: env}
	d.decode(doc.Content[0], reflect.ValueOf(c).Elem(), "")
	c.setDefaults()
	// Faults of form do not hide faults of meaning: all are shown at once.
	if err := errors.Join(append(d.faults, c.faults()...)...); err != nil {
		return nil, err
	}
	c.widen()
	return c, nil
}

// decoder fills structs from YAML nodes itself, since yaml.v3 can neither name
// the path of a fault nor go on behind one.
type decoder struct {
	env    func(string) (string, bool)
	faults []error
	depth  int
}

func (d *decoder) fault(n *yaml.Node, path, format string, args ...any) {
	if path == "" {
		path = "(top level)"
	}
	d.faults = append(d.faults, fmt.Errorf("line %d: %s: %s", n.Line, path, fmt.Sprintf(format, args...)))
}

var unmarshaler = reflect.TypeFor[yaml.Unmarshaler]()

func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string) {
	// An alias may refer to a node that holds it.
	if d.depth++; d.depth > 64 {
		d.fault(n, path, "nested too deeply")
		d.depth--
		return
	}
	defer func() { d.depth-- }()
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		if v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.New(v.Type().Elem())) // "tls:" alone is a section with all defaults
		}
		return
	}
	if reflect.PointerTo(v.Type()).Implements(unmarshaler) {
		d.leaf(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.decode(n, p.Elem(), path)
		v.Set(p)
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fault(n, path, "a list is wanted")
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, e := range n.Content {
			d.decode(e, v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Map: // of string to string
		if n.Kind != yaml.MappingNode {
			d.fault(n, path, "keys with values are wanted")
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for i := 0; i+1 < len(n.Content); i += 2 {
			e := reflect.New(v.Type().Elem()).Elem()
			d.decode(n.Content[i+1], e, path+"."+n.Content[i].Value)
			v.SetMapIndex(reflect.ValueOf(n.Content[i].Value), e)
		}
	default:
		d.leaf(n, v, path)
	}
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.fault(n, path, "keys with values are wanted")
		return
	}
	fields, known := map[string]int{}, []string{}
	for i := 0; i < v.NumField(); i++ {
		key := v.Type().Field(i).Tag.Get("yaml")
		fields[key] = i
		known = append(known, key)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i].Value, n.Content[i].Value
		if path != "" {
			at = path + "." + key
		}
		f, ok := fields[key]
		switch {
		case !ok:
			d.fault(n.Content[i], at, "unknown key; known here are %s", strings.Join(known, ", "))
		case seen[key]:
			d.fault(n.Content[i], at, "given twice")
		default:
			d.decode(n.Content[i+1], v.Field(f), at)
		}
		seen[key] = true
	}
}

// leaf decodes a scalar, or what reads itself, with its environment variables
// put in. Expansion happens on the parsed value, so that no variable's content can
// change the structure of the file.
func (d *decoder) leaf(n *yaml.Node, v reflect.Value, path string) {
	m, ok := d.expand(n, path)
	if !ok {
		return
	}
	if v.Kind() == reflect.String {
		m.Tag = "!!str" // the content of a variable is text where text is wanted
	}
	want := wanted(v.Type())
	if _, own := v.Addr().Interface().(yaml.Unmarshaler); !own && want == whole && m.ShortTag() == "!!float" {
		d.fault(n, path, "%s is wanted", want) // the library would cut 1.5 to 1
		return
	}
	if err := m.Decode(v.Addr().Interface()); err != nil {
		var te *yaml.TypeError
		if errors.As(err, &te) {
			// The library's text would show the value, which may be a secret.
			d.fault(n, path, "%s is wanted", want)
			return
		}
		d.fault(n, path, "%v", err)
	}
}

// whole is what keys are that hold a plain number.
const whole = "a whole number in range"

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint32:
		return whole
	case reflect.Slice:
		return "a string or a list of strings"
	}
	return "a string"
}

func (d *decoder) expand(n *yaml.Node, path string) (*yaml.Node, bool) {
	m, ok := *n, true
	if n.Kind == yaml.SequenceNode {
		m.Content = nil
		for i, e := range n.Content {
			if e.Kind == yaml.AliasNode {
				e = e.Alias
			}
			if e.Kind != yaml.ScalarNode {
				d.fault(e, fmt.Sprintf("%s[%d]", path, i), "a string is wanted")
				return nil, false
			}
			x, good := d.expand(e, fmt.Sprintf("%s[%d]", path, i))
			ok = ok && good
			m.Content = append(m.Content, x)
		}
		return &m, ok
	}
	if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "$") {
		return &m, true
	}
	var b strings.Builder
	rest := n.Value
	for {
		i := strings.Index(rest, "$")
		if i < 0 {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:i])
		rest = rest[i:]
		if strings.HasPrefix(rest, "$$") {
			b.WriteByte('$')
			rest = rest[2:]
			continue
		}
		end := strings.IndexByte(rest, '}')
		if !strings.HasPrefix(rest, "${") || end < 0 {
			b.WriteByte('$')
			rest = rest[1:]
			continue
		}
		name := rest[2:end]
		val, set := d.env(name)
		if !set {
			d.fault(n, path, "environment variable %s is not set", name)
			ok = false
		}
		b.WriteString(val)
		rest = rest[end+1:]
	}
	m.Value = b.String()
	m.Tag, m.Style = "", 0 // "${PORT}" may stand for a number
	return &m, ok
}
