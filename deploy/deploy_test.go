// Package deploy holds what docker-compose.yml mounts. Its test checks the files that only a container engine would
// read otherwise.
package deploy

import (
	"os"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/binlogmq/binlogmq/config"
)

type service struct {
	Image       string
	Build       string
	Volumes     []string
	Environment map[string]string
	Healthcheck *struct {
		Test    []string
		Retries int
	}
	DependsOn map[string]struct{ Condition string } `yaml:"depends_on"`
}

func TestComposeIsComplete(t *testing.T) {
	text, err := os.ReadFile("../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]service
		Volumes  map[string]any
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mysql", "kafka", "pulsar", "binlogmq"} {
		if _, ok := compose.Services[name]; !ok {
			t.Errorf("no service %s", name)
		}
	}
	for name, s := range compose.Services {
		if first, _, found := strings.Cut(s.Image, "/"); found && strings.ContainsAny(first, ".:") {
			t.Errorf("%s: image %s names a registry", name, s.Image)
		}
		if s.Build == "" && s.Healthcheck == nil {
			t.Errorf("%s: no healthcheck", name)
		}
		for other, d := range s.DependsOn {
			if compose.Services[other].Healthcheck == nil || d.Condition != "service_healthy" {
				t.Errorf("%s does not wait for a healthy %s", name, other)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if path, local := strings.CutPrefix(from, "./"); local {
				if _, err := os.Stat("../" + path); err != nil {
					t.Errorf("%s mounts %v", name, err)
				}
			} else if _, ok := compose.Volumes[from]; !ok {
				t.Errorf("%s mounts volume %s, which is not declared", name, from)
			}
		}
	}
	if len(compose.Services["binlogmq"].DependsOn) != 3 {
		t.Error("binlogmq must wait for all the others")
	}

	configuration, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	env := compose.Services["binlogmq"].Environment
	if _, err := config.Parse(configuration, func(name string) (string, bool) { v, ok := env[name]; return v, ok }); err != nil {
		t.Error(err)
	}
}
