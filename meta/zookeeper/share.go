package zookeeper

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// MaxWeight is the highest weight of a process.
const MaxWeight = 1000

// member is one of the processes that share destinations.
type member struct {
	session      int64
	name         string
	weight       int
	destinations map[string]bool // that it would take
}

// memberData is the content of a member's node.
type memberData struct {
	Node         string   `json:"node"`
	Weight       int      `json:"weight"`
	Destinations []string `json:"destinations"`
}

// parseMember reads a member's node.
func parseMember(data []byte) (m member, err error) {
	var d memberData
	if err := json.Unmarshal(data, &d); err != nil {
		return m, err
	}
	if d.Weight < 0 || d.Weight > MaxWeight {
		return m, fmt.Errorf("weight %d: 0 to %d", d.Weight, MaxWeight)
	}
	if d.Node == "" {
		return m, errors.New("no name")
	}
	m = member{name: d.Node, weight: d.Weight, destinations: map[string]bool{}}
	for _, name := range d.Destinations {
		m.destinations[name] = true
	}
	return m, nil
}

// share says who should own each destination, by session. Every process that sees the same members and owners says the same.
// An owner keeps what it has unless another member would be less loaded with it, by destinations per weight. One of weight 0 gets
// only what no other member takes.
func share(members []member, owners map[string]int64) map[string]int64 {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.session, b.session))
	})
	wanted := map[string]bool{} // by a member with a weight
	var names []string
	for i := range members {
		for d := range members[i].destinations {
			if _, seen := wanted[d]; !seen {
				names = append(names, d)
			}
			wanted[d] = wanted[d] || members[i].weight > 0
		}
	}
	slices.Sort(names)
	able := func(i int, d string) bool {
		return members[i].destinations[d] && (members[i].weight > 0 || !wanted[d])
	}
	weight := func(i int) int { return max(1, members[i].weight) }
	load := make([]int, len(members))
	to := map[string]int{}
	for _, d := range names {
		for i := range members {
			if s, owned := owners[d]; owned && s == members[i].session && able(i, d) {
				to[d] = i
				load[i]++
			}
		}
	}
	// lighter says whether i with one destination more is less loaded than j with one more.
	lighter := func(i, j int) bool { return (load[i]+1)*weight(j) < (load[j]+1)*weight(i) }
	lightest := func(d string) (best int) {
		best = -1
		for i := range members {
			if able(i, d) && (best < 0 || lighter(i, best)) {
				best = i
			}
		}
		return best
	}
	for _, d := range names {
		if _, done := to[d]; !done {
			to[d] = lightest(d)
			load[to[d]]++
		}
	}
	for moved := true; moved; {
		moved = false
		// From the heaviest that has something to give.
		from, what, target := -1, "", -1
		for _, d := range names {
			i, j := to[d], lightest(d)
			if load[i]*weight(j) > (load[j]+1)*weight(i) && (from < 0 || load[i]*weight(from) > load[from]*weight(i)) {
				from, what, target = i, d, j
			}
		}
		if from >= 0 {
			load[from]--
			load[target]++
			to[what], moved = target, true
		}
	}
	out := map[string]int64{}
	for d, i := range to {
		out[d] = members[i].session
	}
	return out
}
