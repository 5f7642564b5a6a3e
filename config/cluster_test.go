package config

import (
	"net"
	"strings"
	"testing"
)

// TestCanalsNodes: what Canal's cluster clients are told is an address that they can use, and there is none without ZooKeeper.
func TestCanalsNodes(t *testing.T) {
	const zoo = `meta: { zookeeper: { servers: ["z:2181"] } }`
	for name, c := range map[string]struct{ text, advertise, root, fault string }{
		"an address":       {zoo + "\ncanal: { listen: '10.0.0.1:11111' }", "10.0.0.1:11111", "/otter/canal", ""},
		"a name":           {zoo + "\ncanal: { listen: 'canal-1:11111' }", "canal-1:11111", "/otter/canal", ""},
		"one that is told": {zoo + "\ncanal: { listen: '[::]:11111', advertise: 'canal-1:7', zookeeper_root: /x/canal }", "canal-1:7", "/x/canal", ""},
		"switched off":     {zoo + "\ncanal: { listen: '[::1]:11111', zookeeper_root: off }", "[::1]:11111", "off", ""},
		"IPv6":             {zoo + "\ncanal: { listen: '[::1]:11111' }", "", "", "canal.advertise: "},
		"any port":         {zoo + "\ncanal: { listen: '10.0.0.1:0' }", "", "", "canal.advertise: "},
		"no path":          {zoo + "\ncanal: { listen: '10.0.0.1:1', zookeeper_root: otter }", "", "", "canal.zookeeper_root: "},
		"no ZooKeeper":     {"canal: { listen: '10.0.0.1:0' }", "", "", ""},
		"for nothing":      {"canal: { listen: '10.0.0.1:0', advertise: 'a:1' }", "", "", "canal: zookeeper_root and advertise"},
		"weight":           {"meta: { zookeeper: { servers: ['z:2181'], weight: 1001, rebalance_delay: -1s } }", "", "", "meta.zookeeper.weight: "},
	} {
		got, err := Parse([]byte(minimal+c.text), env(nil))
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || got.Canal.Advertise != c.advertise || got.Canal.ZooKeeperRoot != c.root {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// Listening everywhere is no address: one of this machine is told.
	got, err := Parse([]byte(minimal+zoo+"\ncanal: { listen: ':11111' }"), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(got.Canal.Advertise)
	if ip := net.ParseIP(host); err != nil || port != "11111" || ip.To4() == nil || ip.IsUnspecified() {
		t.Errorf("%s, %v", got.Canal.Advertise, err)
	}
	if w := got.Meta.ZooKeeper.Weight; w == nil || *w != 1 {
		t.Errorf("weight %v", w)
	}
	if got, err := Parse([]byte(minimal+"meta: { zookeeper: { servers: ['z:2181'], weight: 0 } }"), env(nil)); err != nil || *got.Meta.ZooKeeper.Weight != 0 {
		t.Errorf("weight 0: %v", err)
	}
}
