package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/bench/internal/process"
	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/config"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/grpcclient"
)

// programs are evalfleet and guestd, as they are shipped. They are built when they are first needed.
type programs struct {
	// root is the module's folder, dir where the programs go.
	root, dir string
	built     bool
}

// build returns the path of evalfleet; guestd is beside it.
func (p *programs) build(ctx context.Context) (string, error) {
	evalfleet := filepath.Join(p.dir, "evalfleet")
	if p.built {
		return evalfleet, nil
	}
	// The flags are those of scripts/build.sh.
	cmd := exec.CommandContext(ctx, "go", "build",
		"-trimpath", "-tags=grpcnotrace", "-ldflags=-s", "-gcflags=all=-dwarf=false",
		"-o", p.dir+string(filepath.Separator), "./services/allinone/cmd/evalfleet", "./services/sandboxd/cmd/guestd")
	cmd.Dir = p.root
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs: %w: %s", err, said)
	}
	p.built = true
	return evalfleet, nil
}

// settings is the part of a server's configuration that benchmarks set. It is written as JSON, which YAML holds.
type settings struct {
	Log     map[string]string `json:"log"`
	Peers   map[string]string `json:"peers,omitempty"`
	Modelgw modelSettings     `json:"modelgw"`
	// Sandboxd is that of sandboxd, by its names in YAML.
	Sandboxd map[string]any `json:"sandboxd,omitempty"`
}

type modelSettings struct {
	Mockllm struct {
		// Scripts are files by name.
		Scripts map[string]string `json:"scripts,omitempty"`
	} `json:"mockllm"`
	// OpenAI is the account of the provider openai.
	OpenAI map[string]string `json:"openai,omitempty"`
}

// serve starts a server of one service, or of all when target is empty. Its data is in [env.data]. All servers of an
// env share a token.
func (e *env) serve(ctx context.Context, name, target string, s settings) (*process.Child, error) {
	evalfleet, err := e.programs.build(ctx)
	if err != nil {
		return nil, err
	}
	s.Log = map[string]string{"log_level": "error"}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(e.dir, name+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	args := []string{"serve", "--json", "--listen", "127.0.0.1:0", "--data-dir", e.data(name), "--token-file", e.tokenFile(), "--config", file}
	if target != "" {
		args = append(args, "--target", target)
	}
	return process.Start(ctx, evalfleet, args...)
}

// data is the data directory of the server of that name.
func (e *env) data(name string) string { return filepath.Join(e.dir, name) }

func (e *env) tokenFile() string { return filepath.Join(e.dir, "token") }

// token is what the servers of an env take.
func (e *env) token() (config.Secret, error) { return auth.ReadToken(e.tokenFile()) }

// dial makes a connection to a server of the env.
func (e *env) dial(address string) (*grpc.ClientConn, error) {
	token, err := e.token()
	if err != nil {
		return nil, err
	}
	return grpcclient.New(address, grpcclient.Options{Token: token})
}

// scripted returns modelgw's scripts that always answer a text of so many bytes, for [request].
func (e *env) scripted(sizes ...int) (settings, error) {
	var s settings
	s.Modelgw.Mockllm.Scripts = map[string]string{}
	for _, size := range sizes {
		name := strconv.Itoa(size)
		file := filepath.Join(e.dir, name+".script")
		s.Modelgw.Mockllm.Scripts[name] = file
		if err := os.WriteFile(file, []byte(`{"default": "`+strings.Repeat("a", size)+`"}`), 0o600); err != nil {
			return s, err
		}
	}
	return s, nil
}

// request returns a request with a text of so many bytes for an answer of the same length. connections bounds the
// requests in flight; all requests to a model have the same bound.
func request(size, connections int) *modelv1.GenerateRequest {
	return &modelv1.GenerateRequest{
		Parent: "projects/default", Model: scriptedModel, ModelArgsJson: scriptArgs(size),
		Messages: []*modelv1.ChatMessage{chat.User(strings.Repeat("q", size))},
		Config:   &modelv1.GenerateConfig{MaxConnections: new(int32(connections))},
	}
}

const scriptedModel = "mockllm/model"

// scriptArgs are the arguments of the model that always answers a text of so many bytes.
func scriptArgs(size int) string { return `{"script": "` + strconv.Itoa(size) + `"}` }

// cleanup ends what was started, the last first.
type cleanup []func() error

func (c *cleanup) add(f func() error) { *c = append(*c, f) }

func (c *cleanup) all() (err error) {
	for i := len(*c) - 1; i >= 0; i-- {
		err = errors.Join(err, (*c)[i]())
	}
	return err
}
