// Package mockllm is a model whose answers come from a script: for tests, demonstrations and rehearsals without cost.
//
// Its answers do not depend on the order of calls: entries of a script match the sample, epoch and turn of a call, or
// the text of the conversation. Only a plain list of outputs is consumed in order, from the start for each evaluation
// and for each standalone run. Without a script the answer is always the same.
//
// Model arguments: `{"outputs": […]}` is a script in the request, `{"script": "blob:<sha256>"}` one in the project's
// blob store, and `{"script": "<name>"}` one that the configuration names. After a `#`, a blob may have a readable
// name, for errors. Without arguments, the model mockllm/<name> has the script of that name, for clients that cannot
// pass arguments. A request cannot name a path of this machine.
//
// A script is JSON or YAML: an object, or a list of its entries and outputs, or one of these a line.
//
//	entries:                      # the first that fits a call answers
//	- sample: "7"                 # with the attribution's sample; epoch and role likewise
//	  epoch: 1
//	  outputs:                    # by turn: the first for turn 1, and none beyond the last
//	  - {tool_calls: [{function: bash, arguments: {cmd: ls}}]}
//	  - {text: done, delay_s: 0.5}
//	- contains: capital of France # in the last user message; in: last | conversation looks elsewhere
//	  max_turn: 3                 # turn, min_turn
//	  output: {text: Paris}       # for any turn; regexp is the other way to look
//	outputs: [first, second]      # one a call, in order, where no entry fits
//	default: {text: no idea}      # where nothing else is left
//
// An output is a text, a short form (text, reasoning, tool_calls, stop_reason, model, usage, delay_s, chunk_delay_s,
// error: {status, message, retry_after_s, times, after_chunks}), or a whole model output with choices. Arguments are an
// object, or a text for malformed arguments of a model.
package mockllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/singleflight"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/bound"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Name is the provider's name.
const Name = "mockllm"

// Config sets the scripted model up.
type Config struct {
	// Scripts are files of scripts by the name that a request may use.
	Scripts map[string]string `yaml:"scripts"`
	// CallLog is a file to which each call is appended, and synced, before it is answered. Tests use it to count calls
	// across crashes.
	CallLog string `yaml:"call_log" env:"EVALFLEET_MODELGW_MOCK_CALL_LOG"`
}

// Blobs reads bodies of a project by their SHA-256 in hexadecimal digits. It fails with [blob.ErrNotFound] and
// [blob.ErrInvalid].
type Blobs func(ctx context.Context, project, hash string) ([]byte, error)

// blobPrefix marks a script that is a body of the blob store.
const blobPrefix = "blob:"

const (
	// keptBytes bounds the text of the parsed scripts that are kept.
	keptBytes = 4 * bound.ScriptBytes
	// keptWeight is the weight of a cached script beside its text, so that small ones are bounded too.
	keptWeight = 64 << 10
	// parsedAtOnce bounds the scripts that are parsed at the same time, for the memory that it takes.
	parsedAtOnce = 2
)

// host is shared by instances.
type host struct {
	config Config
	blobs  Blobs
	log    *callLog

	// loads has the scripts that are being read, each once. parsing has room for as many as may be parsed at once.
	loads   singleflight.Group
	parsing chan struct{}

	mu      sync.Mutex
	scripts *lru.Cache[string, *script]
}

// Kind returns the provider. blobs may be nil without a blob store. The returned function closes the call log.
func Kind(config Config, blobs Blobs) (provider.Kind, func() error, error) {
	log, err := openCallLog(config.CallLog)
	if err != nil {
		return provider.Kind{}, nil, fmt.Errorf("mockllm: %w", err)
	}
	h := &host{config: config, blobs: blobs, log: log, parsing: make(chan struct{}, parsedAtOnce), scripts: lru.New[string, *script](keptBytes)}
	return provider.Kind{
		Name:        Name,
		Description: "answers from a script; needs no account",
		Models:      append([]string{"model"}, slices.Collect(maps.Keys(config.Scripts))...),
		Accounts:    []*modelv1.Account{{Name: provider.DefaultAccount, Usable: true, Keyless: true}},
		Open:        func(spec provider.Spec) (provider.Provider, error) { return h.open(spec) },
		Check:       h.check,
	}, log.Close, nil
}

// model is one opened model.
type model struct {
	host    *host
	project string
	name    string
	// ref is the reference of the script; empty if it is inline or there is none. title names it in errors.
	ref    string
	title  string
	inline *script
	// places counts the consumed outputs of the list, per consumer.
	places places
}

// arguments are the model arguments.
type arguments struct {
	Outputs []json.RawMessage `json:"outputs"`
	Script  string            `json:"script"`
}

func (h *host) open(spec provider.Spec) (*model, error) {
	m := &model{host: h, project: spec.Project, name: spec.Model}
	if spec.Account != provider.DefaultAccount {
		return nil, provider.NoSuchAccount(Name, spec.Account, []string{provider.DefaultAccount})
	}
	if spec.Args == "" {
		if _, named := h.config.Scripts[spec.Model]; named {
			m.ref, m.title = spec.Model, spec.Model
		}
		return m, nil
	}
	var args arguments
	if err := decodeStrictly([]byte(spec.Args), &args); err != nil {
		return nil, rpcerr.InvalidField("model_args_json", "arguments of %s: %v", Name, err)
	}
	m.ref, m.title = args.Script, args.Script
	if body, title, _ := strings.Cut(args.Script, "#"); strings.HasPrefix(body, blobPrefix) && title != "" {
		m.ref, m.title = body, title
	}
	if args.Outputs != nil {
		whole := document{}
		whole.addItems(args.Outputs)
		parsed, err := whole.compile()
		if err != nil {
			return nil, rpcerr.InvalidField("model_args_json", "outputs: %v", err)
		}
		m.inline = parsed
	}
	return m, nil
}

// check reads the script that a model's arguments name.
func (h *host) check(ctx context.Context, spec provider.Spec) error {
	m, err := h.open(spec)
	if err != nil {
		return err
	}
	_, err = m.script(ctx)
	return err
}

// script returns the script of a model, or nil when it has none.
func (m *model) script(ctx context.Context) (*script, error) {
	if m.inline != nil || m.ref == "" {
		return m.inline, nil
	}
	hash, isBlob := strings.CutPrefix(m.ref, blobPrefix)
	hash = strings.TrimPrefix(hash, "sha256:")
	key := m.ref
	if isBlob {
		key = m.project + "/" + hash
	}
	h := m.host
	h.mu.Lock()
	s, ok := h.scripts.Get(key)
	h.mu.Unlock()
	if ok {
		return s, nil
	}
	// Calls that want the same script share one load, which no one of them ends for the others.
	loading := h.loads.DoChan(key, func() (any, error) { return m.load(context.WithoutCancel(ctx), key, hash, isBlob) })
	select {
	case done := <-loading:
		if done.Err != nil {
			return nil, done.Err
		}
		return done.Val.(*script), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// load reads, parses and caches a script. Its cost is bounded, since the script is. It runs in a goroutine of its own,
// where a panic would end the process: load converts a panic to an error.
func (m *model) load(ctx context.Context, key, hash string, isBlob bool) (_ *script, err error) {
	h := m.host
	h.parsing <- struct{}{}
	defer func() { <-h.parsing }()
	defer func() {
		if p := recover(); p != nil {
			err = rpcerr.Internal("read script %s: panic: %v\n%s", m.title, p, debug.Stack())
		}
	}()
	text, err := h.read(ctx, m.project, hash, isBlob)
	if err == nil && len(text) > bound.ScriptBytes {
		err = &regularfile.Error{Path: "it", Why: fmt.Sprintf("has %d bytes, more than %d", len(text), bound.ScriptBytes)}
	}
	if notRead(err) {
		return nil, rpcerr.InvalidField("model_args_json", "script %s cannot be read: %v", m.title, err)
	}
	if err != nil { // Other errors are not faults of the request. The store may be temporarily unavailable.
		return nil, rpcerr.Wrap(err, "script %s", m.title)
	}
	s, err := parseScript(text)
	if err != nil {
		return nil, rpcerr.InvalidField("model_args_json", "script %s, %v", m.title, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scripts.Put(key, s, int64(len(text))+keptWeight)
	return s, nil
}

// notRead reports whether there is no script, or only one that cannot be valid. An unavailable store may have one.
func notRead(err error) bool {
	if rpcerr.StoreAway(err) {
		return false
	}
	_, unfit := errors.AsType[*regularfile.Error](err)
	return unfit || misplaced(err) || errors.Is(err, blob.ErrNotFound) || errors.Is(err, blob.ErrInvalid) || errors.Is(err, fs.ErrNotExist)
}

// misplaced reports whether a script has a path that the server may not or cannot follow. It is a permanent fault of
// the configuration.
func misplaced(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

func (h *host) read(ctx context.Context, project, hash string, isBlob bool) ([]byte, error) {
	if isBlob {
		if h.blobs == nil {
			return nil, rpcerr.NotBuiltYet("reading a script from the blob store")
		}
		return h.blobs(ctx, project, hash)
	}
	path, known := h.config.Scripts[hash]
	if !known {
		return nil, rpcerr.InvalidField("model_args_json", "no script %q is configured; configured: %s, or give blob:<sha256>",
			hash, strings.Join(slices.Sorted(maps.Keys(h.config.Scripts)), ", "))
	}
	text, err := regularfile.Read(ctx, path, bound.ScriptBytes)
	if misplaced(err) {
		return nil, err
	}
	return text, rpcerr.FromDisk(err, "the scripts")
}

// exhausted is the failure of a call that the script has no answer for.
func (m *model) exhausted(s *script, c call) error {
	used := ""
	if len(s.list) > 0 {
		used = fmt.Sprintf(", and its list of %d is used up", len(s.list))
	}
	return rpcerr.ScriptExhausted(Name+"/"+m.name, c.sample, int(c.turn),
		"the script of %s/%s has no answer for sample %q, epoch %d, turn %d%s; add one, or a default", Name, m.name, c.sample, c.epoch, c.turn, used)
}
