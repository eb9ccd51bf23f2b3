package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// collection is a kind of resource that a person names by its id, by the beginning of its id, or by its name.
type collection struct {
	id, plural string
	// get fails with NOT_FOUND where nothing has that name; list returns the names of all.
	get  func(ctx context.Context, s *session, name string) error
	list func(ctx context.Context, s *session) ([]string, error)
}

var (
	evals = collection{
		"evals", "evaluations",
		func(ctx context.Context, s *session, name string) error {
			_, err := s.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: name})
			return err
		},
		func(ctx context.Context, s *session) ([]string, error) {
			return page(0, func(token string) ([]string, string, error) {
				r, err := s.evals.ListEvals(ctx, &agentv1.ListEvalsRequest{Parent: s.app.parent(), PageSize: 1000, PageToken: token})
				return names(r.GetEvals()), r.GetNextPageToken(), err
			})
		},
	}
	runs = collection{
		"runs", "runs",
		func(ctx context.Context, s *session, name string) error {
			_, err := s.runs.GetRun(ctx, &agentv1.GetRunRequest{Name: name})
			return err
		},
		func(ctx context.Context, s *session) ([]string, error) {
			return page(0, func(token string) ([]string, string, error) {
				r, err := s.runs.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: s.app.parent(), PageSize: 1000, PageToken: token})
				return names(r.GetRuns()), r.GetNextPageToken(), err
			})
		},
	}
	sandboxes = collection{
		"sandboxes", "sandboxes",
		func(ctx context.Context, s *session, name string) error {
			_, err := s.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Name: name})
			return err
		},
		func(ctx context.Context, s *session) ([]string, error) {
			return page(0, func(token string) ([]string, string, error) {
				r, err := s.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Parent: s.app.parent(), PageSize: 1000, PageToken: token})
				return names(r.GetSandboxes()), r.GetNextPageToken(), err
			})
		},
	}
)

func names[T interface{ GetName() string }](items []T) []string {
	var all []string
	for _, item := range items {
		all = append(all, item.GetName())
	}
	return all
}

// name returns the resource name of an id that a person typed: of that id, or else of the only id with that prefix. If
// there is none, it returns the name of the typed id, so that the command reports it as not found.
func (s *session) name(ctx context.Context, of collection, id string) (string, error) {
	name := s.app.name(of.id, id)
	if rpcerr.Code(of.get(ctx, s, name)) != codes.NotFound {
		return name, nil // What else may be wrong, the command meets itself.
	}
	all, err := of.list(ctx, s)
	if err != nil {
		return "", err
	}
	switch fits := beginning(all, name); len(fits) {
	case 0:
		return name, nil
	case 1:
		return fits[0], nil
	default:
		return "", ambiguous(of.plural, id, fits)
	}
}

// beginning are the names that begin so.
func beginning(all []string, begin string) []string {
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, begin) })
}

// ambiguous is the error of a prefix that several ids have.
func ambiguous(plural, id string, fits []string) error {
	var ids []string
	for _, name := range fits {
		ids = append(ids, short(name))
	}
	return usage("%d %s begin with %q: %s; write more of it", len(fits), plural, id, few(ids))
}

// few names the first of many.
func few(names []string) string {
	const most = 8
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
