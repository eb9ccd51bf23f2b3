package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/evalfleet/evalfleet/services/sandboxd"
)

func (a *app) sandboxImageCommand() *cobra.Command {
	var req sandboxd.ImageRequest
	c := &cobra.Command{
		Use:   "image",
		Short: "Build an image for sandboxes of the docker driver from this machine's own files",
		Long: `Image puts bash, the core utilities and python3 with its standard library into an image, as this machine has them, with the shared libraries that they load. It takes no network and works on
any Linux. The image goes into the Docker Engine of the configuration (sandboxd.docker, or DOCKER_HOST), or with --output into a file for docker load. Where the engine has it already, nothing is done.`,
		Example: `  evalfleet sandbox image
  evalfleet eval run examples/demo/task.yaml --driver docker
  evalfleet sandbox image --tag team/sandbox:v1
  evalfleet sandbox image --output sandbox.tar`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := a.loadConfig(c.Context())
			if err != nil {
				return err
			}
			req.Progress = a.byTenths("reading files")
			built, err := sandboxd.BuildImage(c.Context(), cfg.Sandboxd, req)
			if err != nil {
				return err
			}
			if a.json {
				return json.NewEncoder(a.Stdout).Encode(built)
			}
			switch {
			case built.Current:
				a.print("%s is current: %d files, %s", built.Tag, built.Files, megabytes(built.Bytes))
			case built.Output != "":
				a.print("%s is in %s: %d files, %s", built.Tag, built.Output, built.Files, megabytes(built.Bytes))
			default:
				a.print("%s is built: %d files, %s", built.Tag, built.Files, megabytes(built.Bytes))
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVarP(&req.Tag, "tag", "t", "", "name of the image (default: the one that sandboxes are made from which name none)")
	f.StringVarP(&req.Output, "output", "o", "", "write the image to this file; no engine is needed")
	return c
}

// byTenths notes how far a work is, each tenth of it; on one line in a terminal.
func (a *app) byTenths(doing string) func(done, total int64) {
	last := int64(-1)
	return func(done, total int64) {
		if total <= 0 || done*10/total == last || a.json {
			return
		}
		last = done * 10 / total
		if a.StdoutWidth() == 0 {
			if last == 10 || last == 0 {
				a.note("%s: %d%%", doing, last*10)
			}
			return
		}
		end := ""
		if last == 10 {
			end = "\n"
		}
		_, _ = io.WriteString(a.Stderr, fmt.Sprintf("\r%s: %d%%", doing, last*10)+end) // Nothing can be done when the reader is gone.
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }
