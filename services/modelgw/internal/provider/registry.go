package provider

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/evalfleet/evalfleet/pkg/bound"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/pkg/headtail"
	"github.com/evalfleet/evalfleet/pkg/lru"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// maxOpen bounds the instances that a registry keeps; the least recently used ones are closed, and opened again on
// demand. One whose arguments are long counts as several, one for each bytesPerOpen.
const maxOpen, bytesPerOpen = 1024, 64 << 10

// Registry holds the kinds of providers and the opened providers. The zero value is empty and ready to use. Register
// must be called before all other methods, which are safe for concurrent use.
type Registry struct {
	// Logger logs accounts that cannot be used; nil logs nothing.
	Logger *slog.Logger

	kinds  map[string]Kind
	seldom rate.Sometimes

	mu   sync.Mutex
	open *lru.Cache[Ref, *Model]

	resting resting
	// replaced counts the calls of Replace, and replacedAt has the latest one by kind.
	replaced   int
	replacedAt map[string]int
}

// Ref identifies the target of a request.
type Ref struct {
	Project string
	// Model is `provider/name`.
	Model   string
	Account string
	BaseURL string
	Args    string
}

// Model is an opened model.
type Model struct {
	// Kind is the provider, Name the part after the first `/`.
	Kind    Kind
	Name    string
	Account string
	// Key is the number of the credential: 0 is the account's own, n the n-th of its keys.
	Key int
	Provider

	// ring has the instances for all credentials of the account; nil if there is one.
	ring *ring

	once     sync.Once
	constant Capabilities
	named    sync.Once
	fullName string
}

// Constant returns the capabilities that neither the configuration of a call nor the answers so far change: all but
// Features, which it leaves out. They are made once, since each call asks for some of them. The caller must not modify
// them.
func (m *Model) Constant() *Capabilities {
	m.once.Do(func() {
		m.constant = m.CapabilitiesOf(nil)
		m.constant.Features = nil
	})
	return &m.constant
}

// CapabilitiesOf implements [ByConfig]. It names a sealer where a provider with a format does not: the account.
func (m *Model) CapabilitiesOf(c *modelv1.GenerateConfig) Capabilities {
	caps := CapabilitiesOf(m.Provider, c)
	if caps.Sealer == "" && m.Kind.Dialect != "" {
		caps.Sealer = Sealer(m.Kind.Dialect, m.Kind.Name, m.Account)
	}
	return caps
}

// Servers are the addresses of the servers that may answer: one for each credential with an address of its own, in
// order, without what may be secret in them. There is none if no server answers.
func (m *Model) Servers() []string {
	models := []*Model{m}
	if m.ring != nil {
		models = m.ring.models
	}
	var all []string
	for _, m := range models {
		if address := m.Constant().Server; address != "" {
			all = append(all, ShownURL(address))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// FullName returns `provider/name`.
func (m *Model) FullName() string {
	m.named.Do(func() { m.fullName = m.Kind.Name + "/" + m.Name })
	return m.fullName
}

// Register adds a kind. It fails when the name is taken.
func (r *Registry) Register(k Kind) error {
	if _, taken := r.kinds[k.Name]; taken {
		return rpcerr.ResourceExists("providers/"+k.Name, "a provider %q is registered already", k.Name)
	}
	if r.kinds == nil {
		r.kinds = map[string]Kind{}
	}
	k.Models = slices.Sorted(slices.Values(k.Models))
	r.kinds[k.Name] = k
	return nil
}

// Replace replaces kinds of the same names, and closes the opened models of these. Calls in flight end with the old
// ones, and their failures do not make credentials of the new ones rest. Unlike Register it may be called at any time.
func (r *Registry) Replace(kinds ...Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := maps.Clone(r.kinds)
	replaced := map[string]bool{}
	if r.replaced++; r.replacedAt == nil {
		r.replacedAt = map[string]int{}
	}
	for _, k := range kinds {
		k.Models = slices.Sorted(slices.Values(k.Models))
		all[k.Name], replaced[k.Name], r.replacedAt[k.Name] = k, true, r.replaced
	}
	r.kinds = all
	if r.open == nil {
		return
	}
	var old []Ref
	for ref := range r.open.All() {
		if kind, _, _ := strings.Cut(ref.Model, "/"); replaced[kind] {
			old = append(old, ref)
		}
	}
	for _, ref := range old {
		if model, ok := r.open.Remove(ref); ok {
			model.closeAll()
		}
	}
	r.resting.clear()
}

// Kinds returns the registered kinds by name.
func (r *Registry) Kinds() []Kind {
	r.mu.Lock()
	defer r.mu.Unlock()
	kinds := make([]Kind, 0, len(r.kinds))
	for _, name := range slices.Sorted(maps.Keys(r.kinds)) {
		kinds = append(kinds, r.kinds[name])
	}
	return kinds
}

// SplitName cuts `provider/name` at its first slash.
func SplitName(model string) (kind, name string, err error) {
	if len(model) > bound.ModelNameBytes {
		return "", "", rpcerr.InvalidField("model", "the name has %d bytes, and that of a model at most %d", len(model), bound.ModelNameBytes)
	}
	kind, name, ok := strings.Cut(model, "/")
	if !ok || kind == "" || name == "" {
		return "", "", rpcerr.InvalidField("model", "%q is not of the form <provider>/<model>, such as openai/gpt-4o", model)
	}
	if !utf8.ValidString(model) { // Addresses can name such, and metrics, spans and records cannot.
		return "", "", rpcerr.InvalidField("model", "%q is not UTF-8", model)
	}
	return kind, name, nil
}

// none is the model of evaluations that call none.
const none = "none"

// Open returns the instance for a reference: the same one as for an earlier equal reference, if it is still open.
func (r *Registry) Open(ref Ref) (*Model, error) {
	if ref.Model == none || strings.HasPrefix(ref.Model, none+"/") {
		return nil, rpcerr.InvalidField("model", "no model was given: name one as <provider>/<model>")
	}
	kind, name, err := SplitName(ref.Model)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	k, known := r.kinds[kind]
	if !known {
		names := slices.Sorted(maps.Keys(r.kinds))
		return nil, rpcerr.ModelNotFound(ref.Model, names, "unknown provider %q of model %q; known: %s", kind, ref.Model, strings.Join(names, ", "))
	}
	named := "account" // the field that names the account
	if ref.Account == "" {
		ref.Account, named = DefaultAccount, "model"
	}
	if r.open == nil {
		r.open = lru.New[Ref, *Model](maxOpen)
		r.seldom.Interval = logEvery
	}
	if model, ok := r.open.Get(ref); ok {
		return model, nil
	}
	model, err := r.openAll(k, Spec{Project: ref.Project, Model: name, Account: ref.Account, BaseURL: ref.BaseURL, Args: ref.Args})
	if err != nil {
		if rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED) {
			r.logUnusable(k.Name, ref.Account, err)
			return nil, rpcerr.In(named, err)
		}
		return nil, err
	}
	for _, unused := range r.open.Put(ref, model, min(1+int64(len(ref.Args)+len(ref.BaseURL))/bytesPerOpen, maxOpen)) {
		unused.closeAll()
	}
	return model, nil
}

// logUnusable logs the use of an account that cannot be used as it is configured. Callers name accounts freely, so the
// log has at most one line in a while.
func (r *Registry) logUnusable(kind, account string, err error) {
	if r.Logger == nil {
		return
	}
	r.seldom.Do(func() {
		r.Logger.Warn("an account of a provider cannot be used", "provider", kind,
			"account", headtail.Cut(account, maxLogged), "error", headtail.Cut(err.Error(), maxLogged))
	})
}

const (
	// logEvery is the shortest time between two such lines.
	logEvery = 10 * time.Second
	// maxLogged bounds the account and the error, which may name the account too, in bytes each.
	maxLogged = 300
)

// All returns the instances of a model for all credentials of its account.
func (r *Registry) All(ref Ref) ([]*Model, error) {
	model, err := r.Open(ref)
	if err != nil {
		return nil, err
	}
	if model.ring == nil {
		return []*Model{model}, nil
	}
	return slices.Clone(model.ring.models), nil
}

// Check opens a model and validates the references in its arguments. It makes no call.
func (r *Registry) Check(ctx context.Context, ref Ref) error {
	model, err := r.Open(ref)
	if err != nil || model.Kind.Check == nil {
		return err
	}
	return model.Kind.Check(ctx, Spec{Project: ref.Project, Model: model.Name, Account: model.Account, BaseURL: ref.BaseURL, Args: ref.Args})
}

// Close closes all instances.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		return nil
	}
	for _, model := range r.open.All() {
		model.closeAll()
	}
	r.open = nil
	return nil
}
