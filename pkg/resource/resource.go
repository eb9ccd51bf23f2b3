// Package resource makes, reads and writes the names of resources (`projects/{project}/runs/{run}`), page tokens and
// watch cursors.
package resource

import (
	"strings"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// DefaultProject is the project of requests that name none.
const DefaultProject = "projects/default"

// isProjectID reports whether s is 1 to 63 lower-case letters, digits and -, begins with a letter and does not end with
// -.
func isProjectID(s string) bool {
	if len(s) == 0 || len(s) > 63 || !lower(s[0]) || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !lower(c) && !digit(c) && c != '-' {
			return false
		}
	}
	return true
}

// isID reports whether s is 1 to 128 letters, digits and ._~-, and begins with a letter or digit.
func isID(s string) bool {
	if len(s) == 0 || len(s) > 128 || strings.IndexByte("._~-", s[0]) >= 0 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !letter(c) && !digit(c) && strings.IndexByte("._~-", c) < 0 {
			return false
		}
	}
	return true
}

func letter(c byte) bool { return lower(c) || 'A' <= c && c <= 'Z' }

func lower(c byte) bool { return 'a' <= c && c <= 'z' }

func digit(c byte) bool { return '0' <= c && c <= '9' }

// Project is the name of the project with an id: `projects/{project}`.
func Project(id string) string { return "projects/" + id }

// AccountPrefix precedes the provider and the account in the name of an account.
const AccountPrefix = "accounts/"

// Account is the name of an account of a provider of models: `accounts/{provider}/{account}`.
func Account(provider, account string) string { return AccountPrefix + provider + "/" + account }

// IsAccount reports whether a name has the form of an account's.
func IsAccount(name string) bool {
	below, ok := strings.CutPrefix(name, AccountPrefix)
	provider, account, _ := strings.Cut(below, "/")
	return ok && provider != "" && account != "" && !strings.Contains(account, "/")
}

// ParseProject reads `projects/{project}` and returns the project's id. Field names the request's field in the error.
func ParseProject(field, name string) (string, error) {
	rest, ok := strings.CutPrefix(name, "projects/")
	if !ok || !isProjectID(rest) {
		return "", rpcerr.InvalidField(field, "%q is no project; write projects/ and an id of lower-case letters, digits and -", name)
	}
	return rest, nil
}

// Within reads `projects/{project}`, or `projects/-` for every project, and returns which projects' ids are meant.
func Within(field, name string) (func(project string) bool, error) {
	if name == "projects/-" {
		return func(string) bool { return true }, nil
	}
	id, err := ParseProject(field, name)
	return func(project string) bool { return project == id }, err
}

// Name is a resource's name cut into its parts.
type Name struct {
	// Project is the project's id.
	Project string
	// IDs are the ids after the project, in order: the run; the eval and the sample.
	IDs []string
}

// Parse reads a name of the given collections under a project, such as Parse("name", n, "evals", "samples").
func Parse(field, name string, collections ...string) (Name, error) {
	parts := strings.Split(name, "/")
	bad := func() (Name, error) {
		want := "projects/{project}"
		for _, c := range collections {
			want += "/" + c + "/{id}"
		}
		return Name{}, rpcerr.InvalidField(field, "%q is not of the form %s", name, want)
	}
	if len(parts) != 2+2*len(collections) || parts[0] != "projects" || !isProjectID(parts[1]) {
		return bad()
	}
	n := Name{Project: parts[1]}
	for i, c := range collections {
		if parts[2+2*i] != c || !isID(parts[3+2*i]) {
			return bad()
		}
		n.IDs = append(n.IDs, parts[3+2*i])
	}
	return n, nil
}

// Children checks that names are of resources in a collection of the project that parent names, and returns the
// project's id and theirs. It fails with INVALID_REQUEST for the fields `parent` and collection.
func Children(parent, collection string, names []string) (project string, ids []string, err error) {
	if project, err = ParseProject("parent", parent); err != nil {
		return "", nil, err
	}
	for _, name := range names {
		parsed, err := Parse(collection, name, collection)
		if err != nil {
			return "", nil, err
		}
		if parsed.Project != project {
			return "", nil, rpcerr.InvalidField(collection, "%s is not in %s", name, parent)
		}
		ids = append(ids, parsed.IDs[0])
	}
	return project, ids, nil
}

// Format writes a name: Format("default", "runs", "r1") is `projects/default/runs/r1`.
func Format(project string, collectionsAndIDs ...string) string {
	return strings.Join(append([]string{"projects", project}, collectionsAndIDs...), "/")
}

// LastID returns the part after a name's last slash.
func LastID(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
