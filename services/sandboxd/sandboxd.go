// Package sandboxd is the service that makes sandboxes and acts in them: commands, files, leases.
//
// A sandbox and what runs in it live apart from this process. Its guest holds the commands and their results; this
// service holds records and leases, and a connection to each guest that is made again when it is cut. So ending this
// process ends nothing.
package sandboxd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/dirlock"
	"github.com/evalfleet/evalfleet/pkg/effect"
	"github.com/evalfleet/evalfleet/pkg/freespace"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/offload"
	"github.com/evalfleet/evalfleet/pkg/sqlite"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/docker"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/local"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/lifecycle"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/server"
)

// Drivers are the names of the drivers.
func Drivers() []string { return []string{"docker", "local"} }

// Config sets how sandboxes are made.
type Config struct {
	// The limits of sandboxes are those of the lifecycle.
	lifecycle.Config `yaml:",inline"`
	// Dir holds what drivers keep of sandboxes on this machine. One process has it at a time, whatever its data
	// directory. Default: sandboxes in the data directory.
	Dir string `yaml:"dir" env:"EVALFLEET_SANDBOXD_DIR"`
	// GuestPath is the program `guestd`. Default: the file of that name beside the running program, else the one within
	// it.
	GuestPath string `yaml:"guest_path" env:"EVALFLEET_SANDBOXD_GUEST_PATH"`
	// Python is the prefix of the Python installation that local sandboxes show. Default: that of the python3 in
	// SearchPath.
	Python string `yaml:"python" env:"EVALFLEET_SANDBOXD_PYTHON"`
	// SearchPath is where programs of this machine are looked for.
	SearchPath string `yaml:"search_path" env:"PATH"`
	// Docker sets the docker driver up.
	Docker docker.Config `yaml:"docker"`
}

// Validate refuses an unknown driver.
func (c *Config) Validate() error {
	if c.Driver != "" && !slices.Contains(Drivers(), c.Driver) {
		return fmt.Errorf("driver: unknown driver %q; known: %s", c.Driver, strings.Join(Drivers(), ", "))
	}
	return nil
}

// Deps are what the service works with.
type Deps struct {
	// DB holds the records of sandboxes, in tables of the service's own.
	DB *sqlite.DB
	// Ledger keeps claims and results of CreateSandbox; it is the service's own.
	Ledger effect.Ledger
	// Owner names this process in the ledger, from its start to its end: no earlier or later process has the name.
	Owner string
	// Alive reports whether another owner in the ledger still runs; nil where this process has the ledger to itself.
	Alive func(ctx context.Context, owner string) (bool, error)
	// Space is the free disk space below which no sandbox is made; nil for no floor. Config.Dir and the folder of a
	// Docker Engine on this machine are looked at too.
	Space *freespace.Floor
	// Blobs has files of new sandboxes that are named and not sent.
	Blobs offload.Store
	// Logger logs. Commands, their input and their output are never logged.
	Logger *slog.Logger
}

// folderPatience is how long a process that was killed may hold the folder of sandboxes after its data directory, which
// was waited for.
const folderPatience = time.Second

// Service is sandboxd. It is safe for concurrent use.
type Service struct {
	boxes  *lifecycle.Sandboxes
	server *server.Server
	lock   *dirlock.Lock
}

// New makes the service and takes over the sandboxes that an earlier process left. Run lets their leases end, Close
// ends the service. It fails with a [*dirlock.HeldError] when another process has the sandboxes of the folder.
func New(cfg Config, deps Deps) (_ *Service, err error) {
	config.SetDefaults(&cfg)
	if err := config.Validate(&cfg); err != nil {
		return nil, err
	}
	if cfg.Dir == "" || deps.DB == nil || deps.Ledger == nil {
		return nil, errors.New("sandboxd: needs a folder, a database and a ledger")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	ctx := context.Background() // a start is as short as the disk allows
	// Also where the data directory is held: another installation with this folder would take boxes in the making for
	// what a crash left, and remove them.
	within, cancel := context.WithTimeout(ctx, folderPatience)
	defer cancel()
	lock, err := dirlock.Dir{Path: cfg.Dir, Option: "sandboxd.dir (EVALFLEET_SANDBOXD_DIR)"}.Take(within)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Release())
		}
	}()
	store, err := lifecycle.NewStore(ctx, deps.DB)
	if err != nil {
		return nil, err
	}
	host, err := hostOf(cfg.Dir)
	if err != nil {
		return nil, err
	}
	boxes, err := lifecycle.New(ctx, cfg.Config, lifecycle.Deps{
		Drivers: drivers(cfg, deps), Store: store, Host: host, Ledger: deps.Ledger, Owner: deps.Owner, Alive: deps.Alive, Lack: deps.Space.With(cfg.Dir).Lack, Logger: deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &Service{boxes: boxes, server: server.New(boxes, deps.Blobs, deps.Logger), lock: lock}, nil
}

// hostName is the file in the folder of sandboxes that names it.
const hostName = "host"

// hostOf gives the name of a folder of sandboxes, which it keeps in the folder: sandboxes are where that is, whatever
// the machine is called. The folder is locked.
func hostOf(dir string) (string, error) {
	file := filepath.Join(dir, hostName)
	name, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		name = []byte(rand.Text())
		err = writeFile(file, func(w io.Writer) error { _, err := w.Write(name); return err })
	}
	if err != nil {
		return "", fmt.Errorf("name the folder of sandboxes: %w", err)
	}
	return string(name), nil
}

// drivers makes every driver, or one in its place that says why it cannot be used. One that lacks something for the
// moment is made later.
func drivers(cfg Config, deps Deps) map[string]driver.Driver {
	log := deps.Logger
	out := map[string]driver.Driver{}
	for name, build := range map[string]func() (driver.Driver, error){
		"local": func() (driver.Driver, error) {
			return local.New(local.Config{
				Dir: filepath.Join(cfg.Dir, "local"), GuestPath: cfg.GuestPath, Python: cfg.Python, SearchPath: cfg.SearchPath, Logger: log,
			})
		},
		"docker": func() (driver.Driver, error) {
			return docker.New(cfg.Docker, docker.Deps{Dir: filepath.Join(cfg.Dir, "docker"), GuestPath: cfg.GuestPath, Space: deps.Space, Logger: log})
		},
	} {
		d, err := build()
		switch {
		case err == nil:
		case box.Transient(err):
			log.Warn("a driver cannot be used yet", "driver", name, "error", err)
			d = &driver.Late{As: name, Build: build}
		default:
			log.Error("a driver cannot be used", "driver", name, "error", err)
			d = driver.Absent{As: name, Cause: err}
		}
		out[name] = d
	}
	return out
}

// Register offers the service's RPCs at a server.
func (s *Service) Register(registrar grpc.ServiceRegistrar) {
	sandboxv1.RegisterSandboxServiceServer(registrar, s.server)

	// Declared, and not built yet.
	sandboxv1.RegisterPauseServiceServer(registrar, sandboxv1.UnimplementedPauseServiceServer{})
	sandboxv1.RegisterPortServiceServer(registrar, sandboxv1.UnimplementedPortServiceServer{})
	sandboxv1.RegisterSessionServiceServer(registrar, sandboxv1.UnimplementedSessionServiceServer{})
	sandboxv1.RegisterInboundServiceServer(registrar, sandboxv1.UnimplementedInboundServiceServer{})
	sandboxv1.RegisterSandboxGroupServiceServer(registrar, sandboxv1.UnimplementedSandboxGroupServiceServer{})
	sandboxv1.RegisterSandboxPoolServiceServer(registrar, sandboxv1.UnimplementedSandboxPoolServiceServer{})
	sandboxv1.RegisterSnapshotServiceServer(registrar, sandboxv1.UnimplementedSnapshotServiceServer{})
}

// Run ends leases, collects orphans and finds sandboxes that died, until ctx ends.
func (s *Service) Run(ctx context.Context) error { return s.boxes.Run(ctx) }

// Close waits for what is being made and lets go of the sandboxes, which live on under their leases. When ctx ends
// first, the rest is cut short and left to whoever asks for it again.
func (s *Service) Close(ctx context.Context) error {
	return errors.Join(s.boxes.Close(ctx), s.lock.Release())
}
