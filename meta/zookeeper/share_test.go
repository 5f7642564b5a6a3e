package zookeeper

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func node1(session int64, name string, weight int, destinations ...string) member {
	m := member{session: session, name: name, weight: weight, destinations: map[string]bool{}}
	for _, d := range destinations {
		m.destinations[d] = true
	}
	return m
}

func TestShare(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	type owners = map[string]int64
	for name, c := range map[string]struct {
		members []member
		owners  owners
		want    owners
	}{
		"one takes all":                 {[]member{node1(1, "n1", 1, all...)}, nil, owners{"a": 1, "b": 1, "c": 1, "d": 1}},
		"two share from the start":      {[]member{node1(1, "n1", 1, all...), node1(2, "n2", 1, all...)}, nil, owners{"a": 1, "b": 2, "c": 1, "d": 2}},
		"one joins":                     {[]member{node1(1, "n1", 1, all...), node1(2, "n2", 1, all...)}, owners{"a": 1, "b": 1, "c": 1, "d": 1}, owners{"a": 2, "b": 2, "c": 1, "d": 1}},
		"an even share stays":           {[]member{node1(1, "n1", 1, all...), node1(2, "n2", 1, all...)}, owners{"a": 2, "b": 1, "c": 2, "d": 1}, owners{"a": 2, "b": 1, "c": 2, "d": 1}},
		"one destination does not move": {[]member{node1(1, "n1", 1, "a"), node1(2, "n2", 1, "a")}, owners{"a": 2}, owners{"a": 2}},
		"to the heavier":                {[]member{node1(1, "n1", 1, "a"), node1(2, "n2", 2, "a")}, owners{"a": 1}, owners{"a": 2}},
		"by weight":                     {[]member{node1(1, "n1", 3, all...), node1(2, "n2", 1, all...)}, nil, owners{"a": 1, "b": 1, "c": 1, "d": 2}},
		"weight 0 gives all away":       {[]member{node1(1, "n1", 0, all...), node1(2, "n2", 1, all...)}, owners{"a": 1, "b": 1, "c": 1, "d": 2}, owners{"a": 2, "b": 2, "c": 2, "d": 2}},
		"weight 0 is better than none":  {[]member{node1(1, "n1", 0, all...)}, nil, owners{"a": 1, "b": 1, "c": 1, "d": 1}},
		"who does not want it":          {[]member{node1(1, "n1", 1, "b"), node1(2, "n2", 1, "a", "b")}, owners{"a": 1, "b": 2}, owners{"a": 2, "b": 1}},
		"an owner that has died":        {[]member{node1(2, "n2", 1, all...), node1(3, "n3", 1, all...)}, owners{"a": 1, "b": 1, "c": 2, "d": 3}, owners{"a": 2, "b": 3, "c": 2, "d": 3}},
		"nobody":                        {nil, owners{"a": 1}, owners{}},
	} {
		if got := share(c.members, c.owners); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestShareSettles: whatever the members and owners are, each destination has one owner that wants it, all that see the same say
// the same, and who owns what it should owns it on.
func TestShareSettles(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var members []member
		for i := range 1 + rng.IntN(5) {
			m := node1(int64(i+1), fmt.Sprintf("n%d", rng.IntN(3)), rng.IntN(4))
			for d := range 12 {
				if rng.IntN(4) > 0 {
					m.destinations[fmt.Sprint(d)] = true
				}
			}
			members = append(members, m)
		}
		owners := map[string]int64{}
		for d := range 12 {
			if rng.IntN(3) > 0 {
				owners[fmt.Sprint(d)] = int64(rng.IntN(7))
			}
		}
		got := share(members, owners)
		for d, s := range got {
			if m := members[s-1]; !m.destinations[d] {
				t.Fatalf("seed %d: %s to %v", seed, d, m)
			}
		}
		for d := range 12 {
			wanted := false
			for _, m := range members {
				wanted = wanted || m.destinations[fmt.Sprint(d)]
			}
			if _, has := got[fmt.Sprint(d)]; has != wanted {
				t.Fatalf("seed %d: destination %d: %v", seed, d, got)
			}
		}
		if again := share(members, got); !maps.Equal(got, again) {
			t.Fatalf("seed %d: %v, then %v", seed, got, again)
		}
		rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		if again := share(members, owners); !maps.Equal(got, again) {
			t.Fatalf("seed %d: %v, in another order %v", seed, got, again)
		}
	}
}

// FuzzNodes: what anybody writes into our nodes is read or refused.
func FuzzNodes(f *testing.F) {
	f.Add([]byte(`{"node":"a","weight":1,"destinations":["shop"]}`))
	f.Add([]byte(`{"node":"a","epoch":7,"since":"2026-01-31T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := parseMember(data); err == nil && (m.name == "" || m.weight < 0 || m.weight > MaxWeight) {
			t.Errorf("%s: %+v", data, m)
		}
		if o := parseOwner(data); o.Node == "" {
			t.Errorf("%s: an owner without name", data)
		}
	})
}

// TestDifferentLists: processes with different lists of destinations read the same owners, and so reckon the same.
func TestDifferentLists(t *testing.T) {
	lists := [][]string{{"a", "b", "c", "d"}, {"c", "d"}, {"a", "b", "c", "d"}}
	var members []member
	for i, own := range lists {
		members = append(members, node1(int64(i+1), fmt.Sprint("n", i+1), 1, own...))
	}
	owner := map[string]int64{"a": 3, "b": 3, "c": 1, "d": 2} // in ZooKeeper
	for i, own := range lists {
		read := map[string]int64{}
		for _, d := range allDestinations(members, own) {
			read[d] = owner[d]
		}
		if got := share(members, read); !maps.Equal(got, owner) {
			t.Errorf("n%d: %v, want %v", i+1, got, owner)
		}
	}
	// What a process has declined is among its own all the same.
	if got := allDestinations(members[1:2], []string{"x", "c"}); !slices.Equal(got, []string{"c", "d", "x"}) {
		t.Error(got)
	}
}
