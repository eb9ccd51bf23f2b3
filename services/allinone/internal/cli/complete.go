package cli

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalfleet/evalfleet/pkg/enum"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/allinone/internal/datadir"
)

// completionTimeout bounds how long a shell waits for names; it then offers none.
const completionTimeout = 3 * time.Second

// offers asks a server for what a person may mean, each as a word or as `word<TAB>description`.
type offers func(ctx context.Context, s *session) ([]string, error)

// fitting returns the names with a given prefix. Only a running server is asked: completion starts no server, and does
// not report an unreachable one.
func (a *app) fitting(c *cobra.Command, begun string, ask offers) []string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), completionTimeout)
	defer cancel()
	s, err := a.running(ctx)
	if err != nil {
		return nil
	}
	defer s.conn.Close()
	all, err := ask(ctx, s)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(word string) bool { return !strings.HasPrefix(word, begun) })
}

// complete offers names to a shell.
func (a *app) complete(ask offers) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return a.fitting(c, begun, ask), cobra.ShellCompDirectiveNoFileComp
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

// completeFlag is complete for a flag of c. Where no server answers, it offers the names that this program knows; known
// is nil where it knows none.
func (a *app) completeFlag(c *cobra.Command, flag string, ask offers, known func() []string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		names := a.fitting(c, begun, ask)
		if names == nil && known != nil {
			names = beginning(known(), begun)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}) // Fails only for a flag that c does not have.
}

// completeCopy offers the two sides of a copy: one is SANDBOX:PATH, the other a path here, which the shell knows
// itself.
func (a *app) completeCopy(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	const goesOn = cobra.ShellCompDirectiveNoSpace
	box, begins, inBox := strings.Cut(begun, ":")
	switch {
	case len(args) > 1:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1 && strings.Contains(args[0], ":"):
		return nil, cobra.ShellCompDirectiveDefault
	case inBox:
		return a.fitting(c, begun, offerFiles(box, begins)), goesOn | cobra.ShellCompDirectiveNoFileComp
	}
	boxes := a.fitting(c, begun, offerSandboxes)
	for i, word := range boxes {
		name, about, _ := strings.Cut(word, "\t")
		boxes[i] = name + ":\t" + about
	}
	switch {
	case len(args) == 1:
		return boxes, goesOn | cobra.ShellCompDirectiveNoFileComp
	case len(boxes) > 0:
		return boxes, goesOn
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// offerFiles offers the entries beside a path of a sandbox, folders with a slash behind.
func offerFiles(box, begins string) offers {
	folder := begins[:strings.LastIndex(begins, "/")+1]
	return func(ctx context.Context, s *session) ([]string, error) {
		r, err := s.sandboxes.ListFiles(ctx, &sandboxv1.ListFilesRequest{Sandbox: s.app.name("sandboxes", box), Path: path.Clean(folder), PageSize: 1000})
		var all []string
		for _, f := range r.GetFiles() {
			word := box + ":" + folder + f.GetPath()
			if f.GetType() == sandboxv1.FileType_FILE_TYPE_DIRECTORY {
				word += "/"
			}
			all = append(all, word)
		}
		return all, err
	}
}

// offerRuns offers runs in these states; without any, all.
func offerRuns(states ...agentv1.RunState) offers {
	return func(ctx context.Context, s *session) ([]string, error) {
		r, err := s.runs.ListRuns(ctx, &agentv1.ListRunsRequest{Parent: s.app.parent(), States: states})
		var all []string
		for _, run := range r.GetRuns() {
			all = append(all, short(run.GetName())+"\t"+run.GetSpec().GetModel().GetModel()+", "+runState(run))
		}
		return all, err
	}
}

// either offers what several do.
func either(all ...offers) offers {
	return func(ctx context.Context, s *session) (words []string, err error) {
		for _, ask := range all {
			more, err := ask(ctx, s)
			if err != nil {
				return nil, err
			}
			words = append(words, more...)
		}
		return words, nil
	}
}

func offerModels(ctx context.Context, s *session) ([]string, error) {
	r, err := s.models.ListModels(ctx, &modelv1.ListModelsRequest{PageSize: 1000})
	var all []string
	for _, m := range r.GetModels() {
		all = append(all, m.GetShortName())
	}
	return all, err
}

// offerSamples offers samples of the evaluation that is named, else of the newest.
func offerSamples(args []string) offers {
	return func(ctx context.Context, s *session) ([]string, error) {
		eval, _, err := s.find(ctx, args)
		if err != nil || eval == "" {
			return nil, err
		}
		r, err := s.evals.ListSamples(ctx, &agentv1.ListSamplesRequest{Parent: eval, PageSize: 1000})
		var all []string
		for _, sample := range r.GetSamples() {
			if !slices.Contains(all, sample.GetId()) { // Another epoch or model has it too.
				all = append(all, sample.GetId())
			}
		}
		return all, err
	}
}

func offerEvals(ctx context.Context, s *session) ([]string, error) {
	r, err := s.evals.ListEvals(ctx, &agentv1.ListEvalsRequest{Parent: s.app.parent()})
	var all []string
	for _, e := range r.GetEvals() {
		all = append(all, short(e.GetName())+"\t"+e.GetSpec().GetTask()+", "+enum.Word(e.GetState()))
	}
	return all, err
}

func offerSandboxes(ctx context.Context, s *session) ([]string, error) {
	r, err := s.sandboxes.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Parent: s.app.parent()})
	var all []string
	for _, b := range r.GetSandboxes() {
		all = append(all, short(b.GetName())+"\t"+b.GetSpec().GetDriver()+", "+enum.Word(b.GetState()))
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

// errNoServer is the error of a completion without a running server.
var errNoServer = errors.New("no server runs")

// running is a client of the server that --server or EVALFLEET_SERVER names or that holds the data directory. It starts
// none and makes no folder.
func (a *app) running(ctx context.Context) (*session, error) {
	cfg, err := a.loadConfig(ctx)
	if err != nil {
		return nil, err
	}
	address := a.named()
	if address == "" {
		if address, err = holds(ctx, cfg.DataDir); err != nil {
			return nil, err
		}
	}
	token, err := a.token(ctx)
	if err != nil {
		return nil, err
	}
	return a.dial(address, token)
}

// holds is the address of the server that holds a data directory.
func holds(ctx context.Context, path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	dir, err := datadir.Open(path)
	if err != nil {
		return "", err
	}
	lock, holder, err := dir.Lock().Claim(ctx)
	if lock != nil {
		return "", errors.Join(errNoServer, lock.Release())
	}
	return holder.Address, err
}
