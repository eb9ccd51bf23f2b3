// Package docs_test holds the documents to what they speak of.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	blobv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/blob/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	toolv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/tool/v1"
	workerv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/worker/v1"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// Every direct dependency in go.mod has a row in the record of dependencies, and no row speaks of a module that is
// gone.
func TestDependenciesAreRecorded(t *testing.T) {
	t.Parallel()
	record := read(t, "adr/0004-dependencies.md")
	var recorded []string
	for line := range strings.Lines(record) {
		if cells := strings.Split(line, "|"); len(cells) == 7 && strings.Contains(cells[1], "/") {
			for module := range strings.SplitSeq(cells[1], ",") {
				recorded = append(recorded, strings.TrimSpace(module))
			}
		}
	}

	required := regexp.MustCompile(`(?m)^(?:require )?\t?([a-z0-9.-]+\.[a-z]+/\S+|cel\.dev/\S+) v\S+$`)
	gomod := read(t, "../go.mod")
	for _, m := range required.FindAllStringSubmatch(gomod, -1) {
		assert.Contains(t, recorded, m[1], "go.mod requires it: say in docs/adr/0004-dependencies.md what it is for")
	}
	for _, module := range recorded {
		if !strings.Contains(gomod, "\t"+module+" v") {
			t.Errorf("docs/adr/0004-dependencies.md has a row for %s, which go.mod does not require", module)
		}
	}
}

// The tables of ARCHITECTURE.md name every package of a folder, and none that is gone.
func TestThePackagesAreListed(t *testing.T) {
	t.Parallel()
	for folder, within := range map[string][]string{"pkg/": {""}, "services/modelgw/internal/": {"", "provider/"}, "services/agentorch/internal/": {""}} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			_, table, ok := strings.Cut(read(t, "../ARCHITECTURE.md"), "What is in `"+folder+"`:\n\n")
			require.True(t, ok)
			table, _, _ = strings.Cut(table, "\n\n")
			var listed []string
			for line := range strings.Lines(table) {
				for _, name := range regexp.MustCompile("`([\\w/]*)(?:{([\\w,]+)})?`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
					for last := range strings.SplitSeq(name[2], ",") {
						listed = append(listed, name[1]+last)
						assert.DirExists(t, "../"+folder+name[1]+last)
					}
				}
			}
			for _, parent := range within {
				folders, err := os.ReadDir("../" + folder + parent)
				require.NoError(t, err)
				for _, one := range folders {
					if one.IsDir() && one.Name() != "testdata" {
						assert.Contains(t, listed, parent+one.Name())
					}
				}
			}
		})
	}
}

// Decisions are numbered without gaps, are listed in the index and follow the template.
func TestDecisionsAreIndexed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("adr/[0-9]*.md")
	require.NoError(t, err)
	slices.Sort(files)
	require.NotEmpty(t, files)
	index := read(t, "adr/README.md")
	for i, file := range files {
		name := filepath.Base(file)
		assert.Truef(t, strings.HasPrefix(name, fmt.Sprintf("%04d-", i+1)), "%s should be number %d", name, i+1)
		assert.Contains(t, index, "]("+name+")")
		text := read(t, file)
		for _, head := range []string{"**Status:** ", "## Context", "## Choice", "## Turned down", "## When to revisit"} {
			if !strings.Contains(text, "\n"+head) {
				t.Errorf("%s lacks %q", name, head)
			}
		}
	}
}

// A link from one document to a file of the repository leads somewhere.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"../*.md", "*.md", "adr/*.md", "../proto/third_party/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	link := regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	for _, file := range files {
		for _, m := range link.FindAllStringSubmatch(read(t, file), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(file), m[1]))
			assert.NoError(t, err, "%s links to it", file)
		}
	}
}

// Every RPC that REST can carry has a mapping; the others are listed with their replacement.
func TestEveryRPCIsReachableOverREST(t *testing.T) {
	t.Parallel()
	listed := read(t, "parity.md")
	for _, file := range []protoreflect.FileDescriptor{
		agentv1.File_evalfleet_agent_v1_admin_service_proto,
		agentv1.File_evalfleet_agent_v1_inbox_service_proto,
		agentv1.File_evalfleet_agent_v1_eval_service_proto,
		agentv1.File_evalfleet_agent_v1_run_service_proto,
		blobv1.File_evalfleet_blob_v1_blob_service_proto,
		modelv1.File_evalfleet_model_v1_model_service_proto,
		sandboxv1.File_evalfleet_sandbox_v1_sandbox_service_proto,
		toolv1.File_evalfleet_tool_v1_tool_service_proto,
		workerv1.File_evalfleet_worker_v1_worker_service_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for k := range service.Methods().Len() {
				method := service.Methods().Get(k)
				name := fmt.Sprintf("%s.%s", service.Name(), method.Name())
				if method.IsStreamingClient() {
					assert.Contains(t, listed, "\n| `"+name+"` |", "it takes a stream")
					continue
				}
				assert.True(t, proto.HasExtension(method.Options(), annotations.E_Http), "%s has no HTTP mapping", name)
			}
		}
	}
}

// Every test that docs/security.md names for a promise is there: a function, or a subtest by its name.
func TestPromisesOfSecurityNameTests(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == ".tools" || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/drivertest/") && strings.HasSuffix(path, ".go"):
			tests.WriteString(read(t, path))
		}
		return nil
	}))
	all, promises := tests.String(), 0
	for line := range strings.Lines(read(t, "security.md")) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.Contains(cells[2], "`") {
			continue
		}
		promises++
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			named := fmt.Sprintf("%q, func(t *testing.T)", name[1])
			if strings.HasPrefix(name[1], "Test") {
				named = "func " + name[1] + "("
			}
			if !strings.Contains(all, named) {
				t.Errorf("there is no test %q, which should hold: %s", name[1], strings.TrimSpace(cells[1]))
			}
		}
	}
	assert.Greater(t, promises, 40)
}

// The glossary is in alphabetical order, and the packages and types that it names are there.
func TestTheGlossaryNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	var terms []string
	for line := range strings.Lines(read(t, "glossary.md")) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(line, "| ---") || cells[1] == " term " {
			continue
		}
		terms = append(terms, strings.TrimSpace(cells[1]))
		for _, m := range regexp.MustCompile("`pkg/(\\w+)`").FindAllStringSubmatch(cells[2], -1) {
			assert.DirExists(t, "../pkg/"+m[1])
		}
		for _, m := range regexp.MustCompile("`(agent|effect)\\.([A-Z]\\w+)`").FindAllStringSubmatch(cells[2], -1) {
			file := map[string]string{"agent": "../services/agentorch/internal/agent/agent.go", "effect": "../pkg/effect/effect.go"}[m[1]]
			assert.Contains(t, read(t, file), "type "+m[2]+" ", cells[1])
		}
	}
	assert.Greater(t, len(terms), 40)
	assert.True(t, slices.IsSorted(terms), "%v", terms)
}
