package deploy_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// manifest has the fields that the checks below read of any kind of object.
type manifest struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	AutomountServiceAccountToken *bool `yaml:"automountServiceAccountToken"`
	Spec                         struct {
		Selector       map[string]any
		Ports          []port
		MaxUnavailable int `yaml:"maxUnavailable"`
		Replicas       int
		ServiceName    string `yaml:"serviceName"`
		Template       struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
		PodSelector selector `yaml:"podSelector"`
		PolicyTypes []string `yaml:"policyTypes"`
		Ingress     []struct {
			From  []peer
			Ports []port
		}
		Egress []struct {
			To    []peer
			Ports []port
		}
	}
}

type podSpec struct {
	ServiceAccountName           string `yaml:"serviceAccountName"`
	AutomountServiceAccountToken *bool  `yaml:"automountServiceAccountToken"`
	HostUsers                    *bool  `yaml:"hostUsers"`
	HostNetwork                  bool   `yaml:"hostNetwork"`
	HostPID                      bool   `yaml:"hostPID"`
	SecurityContext              struct {
		RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
		RunAsUser      int                   `yaml:"runAsUser"`
		SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []container
}

type container struct {
	Name, Image     string
	Env             []struct{ Name, Value string }
	StartupProbe    probe `yaml:"startupProbe"`
	ReadinessProbe  probe `yaml:"readinessProbe"`
	LivenessProbe   probe `yaml:"livenessProbe"`
	Resources       struct{ Requests, Limits struct{ CPU, Memory string } }
	SecurityContext struct {
		AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
		Privileged               bool
		ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
		Capabilities             struct{ Drop, Add []string }
	} `yaml:"securityContext"`
}

type (
	probe    struct{ GRPC struct{ Port int } }
	port     struct{ Port int }
	selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	peer struct {
		PodSelector       *selector `yaml:"podSelector"`
		NamespaceSelector *selector `yaml:"namespaceSelector"`
		IPBlock           *struct {
			CIDR   string
			Except []string
		} `yaml:"ipBlock"`
	}
)

const nameLabel = "app.kubernetes.io/name"

// base returns the objects of one service by kind.
func base(t *testing.T, service string) map[string]manifest {
	t.Helper()
	objects := map[string]manifest{}
	for _, m := range documents[manifest](t, "k8s/base/"+service+".yaml") {
		assert.Equal(t, service, m.Metadata.Name)
		assert.NotContains(t, objects, m.Kind)
		objects[m.Kind] = m
	}
	return objects
}

func TestKubernetesWorkloads(t *testing.T) {
	t.Parallel()
	for _, service := range services() {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			objects := base(t, service)
			kind := "StatefulSet"
			if service == "gateway" {
				kind = "Deployment" // it keeps nothing
			}
			workload := objects[kind].Spec
			if kind == "StatefulSet" {
				assert.Equal(t, 1, workload.Replicas, "an embedded database has one writer")
				assert.Equal(t, service, workload.ServiceName)
			}
			assert.Equal(t, service, workload.Template.Metadata.Labels[nameLabel])
			assert.Equal(t, service, objects["Service"].Spec.Selector[nameLabel])
			assert.Positive(t, objects["PodDisruptionBudget"].Spec.MaxUnavailable)

			pod := workload.Template.Spec
			assert.Equal(t, service, pod.ServiceAccountName)
			require.NotNil(t, pod.AutomountServiceAccountToken)
			assert.False(t, *pod.AutomountServiceAccountToken, "no service speaks to the API server")
			assert.False(t, pod.HostNetwork)
			assert.False(t, pod.HostPID)
			require.Len(t, pod.Containers, 1)
			c := pod.Containers[0]
			assert.Equal(t, "evalfleet/"+service, c.Image)
			for _, p := range []probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				assert.Equal(t, 7460, p.GRPC.Port)
			}
			assert.NotEmpty(t, c.Resources.Requests.CPU)
			assert.NotEmpty(t, c.Resources.Requests.Memory)
			assert.NotEmpty(t, c.Resources.Limits.Memory)

			security := c.SecurityContext
			assert.False(t, security.Privileged)
			assert.True(t, security.ReadOnlyRootFilesystem)
			assert.Equal(t, []string{"ALL"}, security.Capabilities.Drop)
			if service == "sandboxd" {
				require.NotNil(t, pod.HostUsers)
				assert.False(t, *pod.HostUsers, "root of a user namespace, not of the node")
			} else {
				assert.True(t, pod.SecurityContext.RunAsNonRoot)
				assert.NotZero(t, pod.SecurityContext.RunAsUser)
				assert.Equal(t, "RuntimeDefault", pod.SecurityContext.SeccompProfile.Type)
				assert.Empty(t, security.Capabilities.Add)
				require.NotNil(t, security.AllowPrivilegeEscalation)
				assert.False(t, *security.AllowPrivilegeEscalation)
			}

			env := map[string]string{}
			for _, e := range c.Env {
				env[e.Name] = e.Value
			}
			assert.Equal(t, calls[service], callees(t, env))
		})
	}
}

// names of the services that peers select, sorted.
func names(peers []peer) []string {
	var services []string
	for _, p := range peers {
		if p.PodSelector != nil && p.NamespaceSelector == nil {
			services = append(services, p.PodSelector.MatchLabels[nameLabel])
		}
	}
	slices.Sort(services)
	return services
}

func TestKubernetesNetworkPoliciesMirrorTheCallGraph(t *testing.T) {
	t.Parallel()
	for _, service := range services() {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			policy := base(t, service)["NetworkPolicy"].Spec
			assert.Equal(t, service, policy.PodSelector.MatchLabels[nameLabel])
			assert.ElementsMatch(t, []string{"Ingress", "Egress"}, policy.PolicyTypes)

			require.Len(t, policy.Ingress, 1)
			if service == "gateway" {
				assert.Empty(t, policy.Ingress[0].From, "clients come from anywhere, with a credential")
			} else {
				assert.Equal(t, callers(service), names(policy.Ingress[0].From))
				assert.Equal(t, []port{{7460}}, policy.Ingress[0].Ports)
			}

			var called []string
			internet := false
			for _, rule := range policy.Egress {
				require.NotEmpty(t, rule.To, "a rule without peers opens everything")
				called = append(called, names(rule.To)...)
				for _, p := range rule.To {
					if p.IPBlock != nil {
						internet = true
						assert.Contains(t, p.IPBlock.Except, "169.254.0.0/16", "metadata services stay out of reach")
					}
				}
			}
			assert.Equal(t, calls[service], called)
			assert.Equal(t, service == "modelgw", internet)
		})
	}
}

func TestKubernetesDeniesByDefault(t *testing.T) {
	t.Parallel()
	for _, m := range documents[manifest](t, "k8s/base/namespace.yaml") {
		if m.Kind == "NetworkPolicy" {
			assert.Empty(t, m.Spec.PodSelector.MatchLabels, "it selects every pod")
			assert.ElementsMatch(t, []string{"Ingress", "Egress"}, m.Spec.PolicyTypes)
			assert.Empty(t, m.Spec.Ingress)
			assert.Empty(t, m.Spec.Egress)
			return
		}
	}
	t.Error("namespace.yaml has no NetworkPolicy")
}

type kustomization struct {
	Namespace string
	Resources []string
	Images    []struct{ Name string }
}

func TestKustomizations(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("k8s/base/*.yaml")
	require.NoError(t, err)
	var want []string
	for _, file := range files {
		if name := filepath.Base(file); name != "kustomization.yaml" {
			want = append(want, name)
		}
	}
	k := documents[kustomization](t, "k8s/base/kustomization.yaml")[0]
	assert.ElementsMatch(t, want, k.Resources)

	overlays, err := filepath.Glob("k8s/overlays/*/kustomization.yaml")
	require.NoError(t, err)
	require.Len(t, overlays, 2)
	for _, file := range overlays {
		k := documents[kustomization](t, file)[0]
		assert.Equal(t, []string{"../../base"}, k.Resources, file)
		assert.Equal(t, "evalfleet", k.Namespace, file)
		var images []string
		for _, image := range k.Images {
			images = append(images, strings.TrimPrefix(image.Name, "evalfleet/"))
		}
		assert.ElementsMatch(t, services(), images, file)
	}
}
