package tooltest

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/toolexec/internal/tool"
)

var errNoSandbox = errors.New("the run has no sandbox")

// Sandbox is a tool.Sandbox that answers commands with a function, and whose files are a map.
type Sandbox struct {
	// Answer returns the result of a command; nil answers with an empty success.
	Answer func(spec *sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error)

	mu           sync.Mutex
	specs        []*sandboxv1.ExecSpec
	environments []string
	files        map[string][]byte
}

var _ tool.Sandbox = (*Sandbox)(nil)

// Specs returns the commands so far.
func (s *Sandbox) Specs() []*sandboxv1.ExecSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.specs
}

// Environments returns the names under which the tool asked for the sandbox.
func (s *Sandbox) Environments() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.environments
}

// Exec answers from the script, unless ctx has ended.
func (s *Sandbox) Exec(ctx context.Context, spec *sandboxv1.ExecSpec) (*sandboxv1.ExecResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.specs = append(s.specs, spec)
	s.mu.Unlock()
	if s.Answer == nil {
		return &sandboxv1.ExecResult{}, nil
	}
	return s.Answer(spec)
}

// ReadFile reads a file that was written before.
func (s *Sandbox) ReadFile(ctx context.Context, path string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, ok := s.files[path]
	if !ok {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fs.ErrNotExist}
	}
	return content, ctx.Err()
}

// WriteFile stores a file.
func (s *Sandbox) WriteFile(ctx context.Context, path string, content []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files = map[string][]byte{}
	}
	s.files[path] = content
	return ctx.Err()
}

// GuestPath is `/guest`.
func (s *Sandbox) GuestPath(ctx context.Context) (string, error) { return "/guest", ctx.Err() }

func (s *Sandbox) opened(environment string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.environments = append(s.environments, environment)
}
