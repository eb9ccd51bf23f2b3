// Package auth authenticates callers. A credential is a bearer token; an Authenticator maps it to its principal; the
// principal travels in the context.
package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/regularfile"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Principal is the identity of a credential.
type Principal struct {
	// Name is `admin`, `service:agentorch`, `user:ada`.
	Name string
}

// Operator is the name of who holds the installation's own token.
const Operator = "admin"

// Actor names the principal in journals: `system` if the call is not authenticated.
func (p Principal) Actor() string { return cmp.Or(p.Name, "system") }

// Authenticator knows credentials. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the principal of token. It fails with UNAUTHENTICATED (TOKEN_INVALID).
	Authenticate(ctx context.Context, token string) (Principal, error)
}

type principalKey struct{}

// WithPrincipal puts p into the context.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// FromContext returns the caller; its Name is empty if the call is not authenticated.
func FromContext(ctx context.Context) Principal {
	p, _ := ctx.Value(principalKey{}).(Principal)
	return p
}

// Tokens is an Authenticator over a fixed set of tokens, kept as hashes.
type Tokens struct {
	entries []entry
	service string
}

type entry struct {
	hash      [sha256.Size]byte
	principal Principal
}

// NewTokens accepts the given tokens. Service is the service that refuses all others: with several services that should
// share a token, the error names the one that has another; empty if there is only one.
func NewTokens(service string, tokens map[string]config.Secret) *Tokens {
	t := &Tokens{service: service}
	for name, secret := range tokens {
		t.entries = append(t.entries, entry{sha256.Sum256([]byte(secret.Reveal())), Principal{Name: name}})
	}
	return t
}

// Authenticate looks token up in constant time for each entry.
func (t *Tokens) Authenticate(_ context.Context, token string) (Principal, error) {
	hash := sha256.Sum256([]byte(token))
	for _, e := range t.entries {
		if subtle.ConstantTimeCompare(hash[:], e.hash[:]) == 1 {
			return e.principal, nil
		}
	}
	if token == "" {
		return Principal{}, rpcerr.Unauthenticated("no token; send it as `authorization: Bearer …`")
	}
	if t.service == "" {
		return Principal{}, rpcerr.Unauthenticated("the token is not known")
	}
	return Principal{}, rpcerr.Unauthenticated("the token is not known to %s; a fleet's services and clients share one", t.service)
}

// Bearer returns the token of an authorization header; an empty text if there is none.
func Bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// TokenFile reads the token in path, or makes a random one there that only the owner can read. The folder must exist.
func TokenFile(path string) (config.Secret, error) {
	secret, err := ReadToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	var b [32]byte
	if _, err := rand.Read(b[:]); err != nil {
		return config.Secret{}, err
	}
	token := hex.EncodeToString(b[:])
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // Made with mode 0600.
	if err != nil {
		return config.Secret{}, err
	}
	_, err = f.WriteString(token + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path) // Fails when another process came first; its token then counts.
	}
	_ = os.Remove(f.Name())
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return config.Secret{}, err
	}
	return ReadToken(path)
}

// ReadToken reads the token in path, which is a regular file. It refuses a file that others can read, and a file that
// another user could have put there: it checks the owner, and the permissions of the folder.
func ReadToken(path string) (config.Secret, error) {
	f, info, err := regularfile.Open(path)
	if err != nil {
		return config.Secret{}, err
	}
	defer f.Close()
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return config.Secret{}, err
	}
	switch mine := owner(info); {
	case info.Mode().Perm()&0o077 != 0:
		return config.Secret{}, fmt.Errorf("%s can be read by others; run chmod 600 on it", path)
	case folder.Mode().Perm()&0o002 != 0 && folder.Mode()&fs.ModeSticky == 0:
		return config.Secret{}, fmt.Errorf("everybody can replace %s; run chmod o-w on its folder", path)
	case mine != os.Geteuid() && mine != 0 && mine != owner(folder):
		return config.Secret{}, fmt.Errorf("%s belongs to user %d, who is neither the one that this process runs as nor the owner of its folder; run chown on it, or remove it to have a new token written", path, mine)
	}
	b, err := io.ReadAll(io.LimitReader(f, bound.TokenFileBytes+1))
	if err != nil {
		return config.Secret{}, err
	}
	token := strings.TrimSpace(string(b))
	switch {
	case token == "":
		return config.Secret{}, fmt.Errorf("%s is empty; remove it and start again to have a new token written", path)
	case len(b) > bound.TokenFileBytes:
		return config.Secret{}, fmt.Errorf("%s has more than %d bytes; a token file holds the token and nothing else", path, bound.TokenFileBytes)
	}
	return config.NewSecret(token), nil
}

// owner is the user that a file belongs to.
func owner(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return os.Geteuid()
}

// CheckToken refuses a token that can be guessed for its length. Source is where the token is from.
func CheckToken(token config.Secret, source string) error {
	if n := len([]rune(token.Reveal())); n < bound.TokenCharacters {
		return fmt.Errorf("%s: the token has %d characters and needs at least %d; write a random one, such as the output of `openssl rand -hex 32`", source, n, bound.TokenCharacters)
	}
	return nil
}
