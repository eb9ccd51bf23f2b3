// Package revision describes the git revision of a folder.
//
// It runs the program git, which handles work trees, ignored files and settings of every kind. If git is missing, or
// the folder is in no work tree, there is no revision: it is a convenience for people who read logs, never a reason to
// fail.
package revision

import (
	"context"
	"net/url"
	"os/exec"
	"strings"
	"time"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// patience bounds all that is asked; a status of a large work tree takes seconds.
const patience = 5 * time.Second

// Of returns the revision of a folder; nil where it has none.
func Of(ctx context.Context, folder string) *agentv1.Revision {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	commit, ok := git(ctx, folder, "rev-parse", "--short", "HEAD")
	if !ok {
		return nil
	}
	changes, ok := git(ctx, folder, "status", "--porcelain")
	if !ok {
		return nil
	}
	origin, _ := git(ctx, folder, "remote", "get-url", "origin")
	return &agentv1.Revision{Commit: commit, Origin: withoutSecrets(origin), Dirty: changes != ""}
}

// git asks git about a folder. It takes no lock and starts no helper that the repository names.
func git(ctx context.Context, folder string, args ...string) (answer string, ok bool) {
	c := exec.CommandContext(ctx, "git", append([]string{"--no-optional-locks", "-c", "core.fsmonitor=false", "-C", folder}, args...)...)
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err == nil
}

// withoutSecrets returns the address of a repository without what may let others in: a password, the user of an address
// on the web, which may be a token, and what follows a question mark.
func withoutSecrets(origin string) string {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		if before, after, found := strings.Cut(origin, "@"); err != nil && found && strings.Contains(before, "://") {
			scheme, _, _ := strings.Cut(before, "://")
			return scheme + "://" + after
		}
		return origin // a path, or user@host:path
	}
	switch {
	case u.Scheme == "http" || u.Scheme == "https":
		u.User = nil
	case u.User != nil:
		u.User = url.User(u.User.Username())
	}
	u.RawQuery, u.Fragment = "", ""
	return u.String()
}
