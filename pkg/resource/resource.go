// Package resource reads and writes the names of resources (`projects/{project}/runs/{run}`), page tokens and watch cursors.
package resource

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"regexp"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// DefaultProject is the project of those who name none.
const DefaultProject = "projects/default"

var (
	projectID = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	id        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$`)
)

// Project reads `projects/{project}` and returns the project's id. Field names the request's field in the error.
func Project(field, name string) (string, error) {
	rest, ok := strings.CutPrefix(name, "projects/")
	if !ok || !projectID.MatchString(rest) {
		return "", rpcerr.InvalidField(field, "%q is no project; write projects/ and an id of lower-case letters, digits and -", name)
	}
	return rest, nil
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
	if len(parts) != 2+2*len(collections) || parts[0] != "projects" || !projectID.MatchString(parts[1]) {
		return bad()
	}
	n := Name{Project: parts[1]}
	for i, c := range collections {
		if parts[2+2*i] != c || !id.MatchString(parts[3+2*i]) {
			return bad()
		}
		n.IDs = append(n.IDs, parts[3+2*i])
	}
	return n, nil
}

// Format writes a name: Format("default", "runs", "r1") is `projects/default/runs/r1`.
func Format(project string, collectionsAndIDs ...string) string {
	return strings.Join(append([]string{"projects", project}, collectionsAndIDs...), "/")
}

// LastID returns what stands after a name's last slash.
func LastID(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// PageSize applies the documented default and cap of lists: 100 and 1000.
func PageSize(asked int32) int {
	switch {
	case asked <= 0:
		return 100
	case asked > 1000:
		return 1000
	}
	return int(asked)
}

// PageToken writes a token that goes on after position within the list that request asked for. The request's own page_size and page_token do not count.
func PageToken(position string, request proto.Message) string {
	sum := digest(request)
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint32(nil, sum), position...))
}

// Position reads a token made by PageToken for the same request. The empty token is the empty position.
func Position(token string, request proto.Message) (string, error) {
	return position("page_token", token, request)
}

// Cursor is Position for the cursor of a watch.
func Cursor(cursor string, request proto.Message) (string, error) {
	return position("cursor", cursor, request)
}

func position(field, token string, request proto.Message) (string, error) {
	if token == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 4 || binary.BigEndian.Uint32(b) != digest(request) {
		return "", rpcerr.InvalidCursor(field, "%s belongs to another request; begin again without it", field)
	}
	return string(b[4:]), nil
}

// digest hashes what a page token is bound to: the request without its page_size and page_token.
func digest(request proto.Message) uint32 {
	m := proto.Clone(request).ProtoReflect()
	for _, field := range []string{"page_size", "page_token"} {
		if f := m.Descriptor().Fields().ByTextName(field); f != nil {
			m.Clear(f)
		}
	}
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m.Interface())
	sum := sha256.Sum256(append([]byte(m.Descriptor().FullName()), b...))
	return binary.BigEndian.Uint32(sum[:])
}
