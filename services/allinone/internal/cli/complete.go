package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/datadir"
)

// completionTimeout bounds how long a shell waits for names; it then offers none.
const completionTimeout = 3 * time.Second

// offers asks a server for what a person may mean, each as a word or as `word<TAB>description`.
type offers func(ctx context.Context, s *session) ([]string, error)

// complete offers names to a shell. Only a server that runs is asked: none is started for a key press, and none that is away is reported.
func (a *app) complete(ask offers) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), completionTimeout)
		defer cancel()
		s, err := a.running()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer s.conn.Close()
		all, err := ask(ctx, s)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var fit []string
		for _, word := range all {
			if strings.HasPrefix(word, begun) {
				fit = append(fit, word)
			}
		}
		return fit, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFirst is complete for a command whose first argument alone is such a name.
func (a *app) completeFirst(ask offers) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.complete(ask)(c, args, begun)
	}
}

// completeFlag is complete for a flag of c.
func (a *app) completeFlag(c *cobra.Command, flag string, ask offers) {
	_ = c.RegisterFlagCompletionFunc(flag, a.complete(ask)) // Fails only for a flag that c does not have.
}

func offerEvals(ctx context.Context, s *session) ([]string, error) {
	r, err := s.evals.ListEvals(ctx, &agentv1.ListEvalsRequest{Parent: s.app.parent()})
	var all []string
	for _, e := range r.GetEvals() {
		all = append(all, short(e.GetName())+"\t"+e.GetSpec().GetTask()+", "+word(e.GetState(), "EVAL_STATE_"))
	}
	return all, err
}

func offerSandboxes(ctx context.Context, s *session) ([]string, error) {
	r, err := s.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Parent: s.app.parent()})
	var all []string
	for _, b := range r.GetSandboxes() {
		all = append(all, short(b.GetName())+"\t"+b.GetSpec().GetDriver()+", "+word(b.GetState(), "SANDBOX_STATE_"))
	}
	return all, err
}

func offerDrivers(ctx context.Context, s *session) ([]string, error) {
	r, err := s.sandboxes.ListDrivers(ctx, &sandboxv1.ListDriversRequest{})
	var all []string
	for _, d := range r.GetDrivers() {
		all = append(all, d.GetName())
	}
	return all, err
}

func offerTools(ctx context.Context, s *session) ([]string, error) {
	tools, err := s.listTools(ctx)
	var all []string
	for _, t := range tools {
		first, _, _ := strings.Cut(t.GetInfo().GetDescription(), "\n")
		all = append(all, t.GetInfo().GetName()+"\t"+first)
	}
	return all, err
}

// errNoServer says that no server runs to be asked.
var errNoServer = errors.New("no server runs")

// running is a client of the server that --server names or that holds the data directory. It starts none and makes no folder.
func (a *app) running() (*session, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	address := a.server
	if address == "" {
		if address, err = holds(cfg.DataDir); err != nil {
			return nil, err
		}
	}
	token, err := a.token()
	if err != nil {
		return nil, err
	}
	return a.dial(address, token)
}

// holds is the address of the server that holds a data directory.
func holds(path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	dir, err := datadir.Open(path)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	lock, holder, err := dir.Lock().Claim(ctx)
	if lock != nil {
		return "", errors.Join(errNoServer, lock.Release())
	}
	return holder.Address, err
}
