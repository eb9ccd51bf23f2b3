package deploy_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// readBy returns the variables that a service's configuration reads: the tags of the structs of pkg and of the service
// itself.
func readBy(t *testing.T, service string) map[string]bool {
	t.Helper()
	tag := regexp.MustCompile(`env:"(EVALFLEET_\w+)"`)
	read := map[string]bool{"EVALFLEET_CONFIG": true} // It names the file; see pkg/daemon.
	for _, root := range []string{"../pkg", "../services/" + service} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range tag.FindAllSubmatch(source, -1) {
				read[string(m[1])] = true
			}
			return err
		}))
	}
	return read
}

// environment is what an installation sets for a service, and the folders that are mounted there.
type environment struct {
	variables map[string]string
	mounts    []string
}

func (e environment) mounted(file string) bool {
	for _, mount := range e.mounts {
		if file == mount || strings.HasPrefix(file, mount+"/") {
			return true
		}
	}
	return false
}

// check asks that each variable is read by the service, and that each path lies in a folder that is mounted there.
func (e environment) check(t *testing.T, service string) {
	t.Helper()
	read := readBy(t, service)
	for variable, value := range e.variables {
		assert.True(t, read[variable], "%s is set for %s, which does not read it", variable, service)
		isPath := strings.HasSuffix(variable, "_DIR") || strings.HasSuffix(variable, "_FILE") || variable == "EVALFLEET_CONFIG"
		if isPath && !(service == "gateway" && variable == "EVALFLEET_DATA_DIR") {
			assert.True(t, e.mounted(value), "%s of %s is %s, which is not mounted: %v", variable, service, value, e.mounts)
		}
	}
	assert.Equal(t, "0.0.0.0:7460", e.variables["EVALFLEET_LISTEN"])
	assert.Equal(t, "true", e.variables["EVALFLEET_ALLOW_REMOTE"], "an address that others reach must be allowed")
}

func TestComposeEnvironment(t *testing.T) {
	t.Parallel()
	file := documents[composeFile](t, "../docker-compose.yaml")[0]
	tokens := map[string]bool{}
	for name, s := range file.Services {
		e := environment{variables: s.Environment}
		for _, volume := range s.Volumes {
			e.mounts = append(e.mounts, strings.Split(volume, ":")[1])
		}
		for _, secret := range s.Secrets {
			e.mounts = append(e.mounts, "/run/secrets/"+secret)
		}
		e.check(t, name)
		// The token's file is written by the first service, for its owner alone, which is what the services ask of it.
		// A secret that compose mounts would have the modes of the host's file.
		tokens[s.Environment["EVALFLEET_TOKEN_FILE"]] = true
		assert.NotContains(t, s.Environment, "EVALFLEET_TOKEN")
	}
	assert.Len(t, tokens, 1, "all share one token")
	for name, secret := range file.Secrets {
		source := secret.(map[string]any)["file"].(string)
		_, fallback, ok := strings.Cut(strings.Trim(source, "${}"), ":-")
		require.True(t, ok, "%s: %s has a default", name, source)
		text, err := os.ReadFile(filepath.Join("..", fallback))
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, new(map[string]any)))
	}
}

// The services share one folder of bodies; the gateway, which keeps nothing, has none.
func TestComposeSharesBodies(t *testing.T) {
	t.Parallel()
	for name, s := range documents[composeFile](t, "../docker-compose.yaml")[0].Services {
		shared := ""
		for _, volume := range s.Volumes {
			if source, target, _ := strings.Cut(volume, ":"); source == "blobs" {
				shared = target
			}
		}
		assert.Equal(t, shared, s.Environment["EVALFLEET_BLOB_DIR"], name)
		assert.Equal(t, name != "gateway", shared != "", name)
	}
}

type workload struct {
	Kind string
	Spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Env []struct {
						Name, Value string
						ValueFrom   struct {
							SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
						} `yaml:"valueFrom"`
					}
					VolumeMounts []struct {
						Name      string
						MountPath string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				}
				Volumes []struct {
					Name   string
					Secret *struct {
						SecretName string `yaml:"secretName"`
					}
					PersistentVolumeClaim struct {
						ClaimName string `yaml:"claimName"`
					} `yaml:"persistentVolumeClaim"`
				}
			}
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

type generators struct {
	ConfigMapGenerator []struct {
		Name     string
		Literals []string
	} `yaml:"configMapGenerator"`
	SecretGenerator []struct {
		Name            string
		Files, Literals []string
	} `yaml:"secretGenerator"`
}

func TestKubernetesEnvironment(t *testing.T) {
	t.Parallel()
	common := map[string]string{}
	for _, literal := range documents[generators](t, "k8s/base/kustomization.yaml")[0].ConfigMapGenerator[0].Literals {
		name, value, _ := strings.Cut(literal, "=")
		common[name] = value
	}
	needed := map[string]map[string]bool{} // keys of secrets
	need := func(secret, key string) {
		if needed[secret] == nil {
			needed[secret] = map[string]bool{}
		}
		needed[secret][key] = true
	}
	for _, service := range services() {
		for _, w := range documents[workload](t, "k8s/base/"+service+".yaml") {
			if w.Kind != "StatefulSet" && w.Kind != "Deployment" {
				continue
			}
			c := w.Spec.Template.Spec.Containers[0]
			e := environment{variables: map[string]string{}}
			volumes := map[string]bool{}
			for _, v := range w.Spec.Template.Spec.Volumes {
				volumes[v.Name] = true
				if v.Secret != nil {
					need(v.Secret.SecretName, path.Base(configFile(w)))
				}
			}
			for _, v := range w.Spec.VolumeClaimTemplates {
				volumes[v.Metadata.Name] = true
			}
			for _, m := range c.VolumeMounts {
				assert.True(t, volumes[m.Name], "%s mounts %s", service, m.Name)
				e.mounts = append(e.mounts, m.MountPath)
			}
			for name, value := range common {
				e.variables[name] = value
			}
			for _, v := range c.Env {
				e.variables[v.Name] = v.Value
				if ref := v.ValueFrom.SecretKeyRef; ref.Name != "" {
					need(ref.Name, ref.Key)
				}
			}
			e.check(t, service)
			// Kubernetes mounts secrets readable by the group, which the services refuse of a token's file; so it comes
			// by the environment.
			assert.Contains(t, e.variables, "EVALFLEET_TOKEN", service)
			assert.NotContains(t, e.variables, "EVALFLEET_TOKEN_FILE", service)
		}
	}
	overlays, err := filepath.Glob("k8s/overlays/*/kustomization.yaml")
	require.NoError(t, err)
	for _, file := range overlays {
		made := map[string]map[string]bool{}
		for _, g := range documents[generators](t, file)[0].SecretGenerator {
			made[g.Name] = map[string]bool{}
			for _, item := range append(g.Files, g.Literals...) {
				key, _, _ := strings.Cut(item, "=")
				made[g.Name][key] = true
			}
		}
		assert.Equal(t, needed, made, "%s makes the secrets that the workloads use", file)
	}
}

// So do the workloads of Kubernetes, on a volume that pods on many nodes may write.
func TestKubernetesSharesBodies(t *testing.T) {
	t.Parallel()
	type claim struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			AccessModes []string `yaml:"accessModes"`
		}
	}
	claims := documents[claim](t, "k8s/base/blobs.yaml")
	require.Len(t, claims, 1)
	assert.Equal(t, "PersistentVolumeClaim", claims[0].Kind)
	assert.Equal(t, "blobs", claims[0].Metadata.Name)
	assert.Equal(t, []string{"ReadWriteMany"}, claims[0].Spec.AccessModes)
	for _, service := range services() {
		for _, w := range documents[workload](t, "k8s/base/"+service+".yaml") {
			if w.Kind != "StatefulSet" && w.Kind != "Deployment" {
				continue
			}
			folder, shared := "", ""
			c := w.Spec.Template.Spec.Containers[0]
			for _, v := range c.Env {
				if v.Name == "EVALFLEET_BLOB_DIR" {
					folder = v.Value
				}
			}
			for _, v := range w.Spec.Template.Spec.Volumes {
				for _, m := range c.VolumeMounts {
					if v.PersistentVolumeClaim.ClaimName == "blobs" && m.Name == v.Name {
						shared = m.MountPath
					}
				}
			}
			assert.Equal(t, shared, folder, service)
			assert.Equal(t, service != "gateway", shared != "", service)
		}
	}
}

// configFile is the file that a workload's EVALFLEET_CONFIG names.
func configFile(w workload) string {
	for _, v := range w.Spec.Template.Spec.Containers[0].Env {
		if v.Name == "EVALFLEET_CONFIG" {
			return v.Value
		}
	}
	return ""
}

// Every service that is installed has a program, and the probe too.
func TestImagesHaveTheirPrograms(t *testing.T) {
	t.Parallel()
	dockerfile, err := os.ReadFile("docker/Dockerfile")
	require.NoError(t, err)
	assert.Contains(t, string(dockerfile), "./services/${SERVICE}/cmd/${SERVICE}")
	for _, program := range append([]string{"../services/sandboxd/cmd/guestd", "docker/probe"}, mains()...) {
		assert.FileExists(t, filepath.Join(program, "main.go"))
	}
	for _, built := range []string{"./deploy/docker/probe", "./services/sandboxd/cmd/guestd"} {
		assert.Contains(t, string(dockerfile), built)
	}
	for _, mount := range []string{"/var/lib/evalfleet", "/keys", "/blobs"} {
		assert.Regexp(t, `(?m)^COPY --from=build --chown=65532:65532 \S+ `+mount+`$`, string(dockerfile), "a new volume belongs to the user of the services")
	}
}

func mains() []string {
	var paths []string
	for _, service := range services() {
		paths = append(paths, "../services/"+service+"/cmd/"+service)
	}
	return paths
}
