// Package cli is the command evalfleet: a server for one machine, and a client of any server.
//
// Each command is a file. A command gets a [session], which is a connection to a server: the one that --server names,
// the one that holds the data directory, or one that is started in this process for as long as the command needs it. So
// every command works on a machine where nothing runs yet, and two commands at once share one server.
package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalfleet/evalfleet/pkg/dirlock"
	"github.com/evalfleet/evalfleet/pkg/resource"
)

// app is one invocation.
type app struct {
	Process
	// at is the command that runs; nil until the command line was understood.
	at *cobra.Command
	// holder is the process whose server the command uses since it holds the data directory; zero for none.
	holder dirlock.Holder

	// Global flags.
	server, tokenFile, dataDir, config string
	project                            string
	json                               bool
	allowUnisolated                    bool
	// costs is the file of --model-cost-config; empty without one.
	costs string
}

// Main runs the command line args, without the program's name, and returns the exit code.
func Main(ctx context.Context, p Process, args []string) int {
	out := &output{to: p.Stdout}
	p.Stdout = out
	a := &app{Process: p}
	root := a.root() //nolint:contextcheck // Commands get the context from cobra.
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && a.at == nil { // Cobra's own: unknown commands, flags and numbers of arguments.
		a.at = root
		if found, _, findErr := root.Find(args); findErr == nil {
			a.at = found
		}
		err = usageError{err}
	}
	if err == nil {
		err = out.failed()
	}
	a.report(err)
	return exitCode(err)
}

const rootHelp = `evalfleet runs agents and evaluations of language models, each in its own sandbox, and loses nothing when a process dies.

On one machine there is nothing to set up: eval run and run start a server in their own process, and a second command finds it and becomes its client. evalfleet serve
keeps one running.

Exit codes: 0 all is well; 1 the work failed, or what was asked for is not there; 2 the command line or a file it names is wrong, also where the server finds that; 3 the server cannot
be reached or refuses the token; 130 interrupted. sandbox exec exits as its program does.`

func (a *app) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "evalfleet",
		Short: "Run agents and evaluations of language models",
		Long:  rootHelp,
		Example: `  evalfleet eval run examples/demo/task.yaml          run an evaluation here, following its progress
  evalfleet run --model openai/gpt-4o --tool bash "How many CPUs does this machine have?"
  evalfleet logs SAMPLE_OR_RUN                        read what happened
  evalfleet serve                                     keep a server running`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(c *cobra.Command, _ []string) {
			a.at = c
		},
	}
	c.SetIn(a.Stdin)
	c.SetOut(a.Stdout)
	c.SetErr(a.Stderr)
	c.SetFlagErrorFunc(flagValue)
	f := c.PersistentFlags()
	f.StringVar(&a.server, "server", "", "address of a running server, host:port (default: EVALFLEET_SERVER, else the one that holds the data directory, else one is started)")
	f.StringVar(&a.tokenFile, "token-file", "", "file with the server's token (default: token in the data directory)")
	f.StringVar(&a.dataDir, "data-dir", "", "data directory (default $XDG_DATA_HOME/evalfleet or ~/.local/share/evalfleet)")
	f.StringVar(&a.config, "config", "", "configuration file of a server that is started here (docs/config.md)")
	f.StringVar(&a.costs, "model-cost-config", "", "file of prices of models for a server that is started here (docs/config.md)")
	f.StringVar(&a.project, "project", "default", "project")
	f.BoolVar(&a.json, "json", false, "write JSON, one value per line")
	c.AddGroup(&cobra.Group{ID: "work", Title: "Work:"}, &cobra.Group{ID: "look", Title: "Look around:"}, &cobra.Group{ID: "server", Title: "Server:"})
	for id, commands := range map[string][]*cobra.Command{
		"work":   {a.evalCommand(), a.runCommand(), a.inspectCommand(), a.logsCommand()},
		"look":   {a.modelsCommand(), a.batchesCommand(), a.cacheCommand(), a.limitsCommand(), a.toolsCommand(), a.sandboxCommand()},
		"server": {a.serveCommand(), a.versionCommand()},
	} {
		for _, command := range commands {
			command.GroupID = id
			c.AddCommand(command)
		}
	}
	return group(c)
}

// parent is the project's resource name.
func (a *app) parent() string { return "projects/" + strings.TrimPrefix(a.project, "projects/") }

// name makes a resource's name of an id or a name: `e1` and `evals/e1` are `projects/default/evals/e1`.
func (a *app) name(collection, id string) string {
	if strings.HasPrefix(id, "projects/") {
		return id
	}
	return a.parent() + "/" + collection + "/" + strings.TrimPrefix(id, collection+"/")
}

// next is a command for a person to run next: as this one was called, against the same server.
func (a *app) next(format string, args ...any) string {
	line := shellQuote(a.Name) + " " + fmt.Sprintf(format, args...)
	for _, flag := range []struct{ name, value string }{
		{"--server", a.server},
		{"--token-file", a.tokenFile},
		{"--data-dir", a.dataDir},
		{"--config", a.config},
		{"--model-cost-config", a.costs},
	} {
		if flag.value != "" {
			line += " " + flag.name + " " + shellQuote(flag.value)
		}
	}
	if a.project != "default" {
		line += " --project " + shellQuote(a.project)
	}
	return line
}

// short is the id of a name, which is what people type.
func short(name string) string { return resource.LastID(name) }
