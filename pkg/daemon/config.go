package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/telemetry"
)

// Config is the part of the configuration that every process has.
type Config struct {
	// Listen is the address to take calls at. Default: this machine alone, at the port of the service (gateway and
	// single binary 7460, agentorch 7462, modelgw 7463, toolexec 7464, sandboxd 7465). An address that others can reach
	// needs AllowRemote.
	Listen string `yaml:"listen" env:"EVALFLEET_LISTEN"`
	// AllowRemote allows a listen address that is not loopback. Connections are not encrypted, and the token
	// travels on them: put TLS in front (docs/deploy.md).
	AllowRemote bool `yaml:"allow_remote" env:"EVALFLEET_ALLOW_REMOTE"`
	// MaxConnections is how many connections clients may have open at once. When another one arrives, one
	// without an accepted token is closed; if there is none, one that has no call; if all have calls, the new one. If the
	// process may open few files it is at most half of those. Default 4096.
	MaxConnections int `yaml:"max_connections" env:"EVALFLEET_MAX_CONNECTIONS"`
	// DataDir is the folder of all data: database, bodies, sandboxes. One process serves it at a time. The single
	// binary has its token there too, and takes $XDG_DATA_HOME/evalfleet or ~/.local/share/evalfleet by default; a
	// service that runs alone needs one of its own.
	DataDir string `yaml:"data_dir" env:"EVALFLEET_DATA_DIR"`
	// BlobDir is the folder of bodies. Default: blobs in DataDir. Services in processes of their own share one.
	BlobDir string `yaml:"blob_dir" env:"EVALFLEET_BLOB_DIR"`
	// MinFreeBytes is the free space on the disks of DataDir and BlobDir below which no new work starts: new runs and
	// samples wait, new sandboxes are refused for now, and work in progress continues. Default 0: 2 % of the disk, and
	// at most 1 GiB. -1 is no floor. There is also a floor of free files (inodes): 2 % of those that the disk can hold,
	// and at most 10,000.
	MinFreeBytes int64 `yaml:"min_free_bytes" env:"EVALFLEET_MIN_FREE_BYTES"`
	// Replica is the name of this process among those of its service. It must stay the same over restarts: the next
	// process of the name continues the work of the previous one at once. Processes that share a database need
	// different names. Default `local`, which is right while a data directory has one process.
	Replica string `yaml:"replica" env:"EVALFLEET_REPLICA"`
	// ReplicaTTL is how long after its last sign of life a process counts as dead, and others take over its work.
	// Default 5s.
	ReplicaTTL time.Duration `yaml:"replica_ttl" env:"EVALFLEET_REPLICA_TTL"`
	// StopGrace is how long calls in flight may continue after the signal to stop; the rest of a stop may take as long
	// again. What stops the process must wait for both. Default 25s for a service that runs alone, 4s for the single
	// binary.
	StopGrace time.Duration `yaml:"stop_grace" env:"EVALFLEET_STOP_GRACE"`
	// Token is the admin token that clients and services send. Default: the one in TokenFile.
	Token config.Secret `yaml:"token" env:"EVALFLEET_TOKEN"`
	// TokenFile is the file of the admin token; it is created if it does not exist. Default in the single binary: token
	// in DataDir. Services in processes of their own share one.
	TokenFile string `yaml:"token_file" env:"EVALFLEET_TOKEN_FILE"`
	// Peers are the addresses of the services that run elsewhere.
	Peers Peers `yaml:"peers"`
	// Log sets how the process logs.
	Log telemetry.Config `yaml:"log"`
	// Telemetry sets where the traces of the process go.
	Telemetry telemetry.TraceConfig `yaml:"telemetry"`
}

// Peers are addresses, host:port, of services in other processes.
type Peers struct {
	// Modelgw is where modelgw is. agentorch and gateway call it.
	Modelgw string `yaml:"modelgw" env:"EVALFLEET_MODELGW_ADDRESS"`
	// Toolexec is where toolexec is. agentorch and gateway call it.
	Toolexec string `yaml:"toolexec" env:"EVALFLEET_TOOLEXEC_ADDRESS"`
	// Sandboxd is where sandboxd is. toolexec, agentorch and gateway call it.
	Sandboxd string `yaml:"sandboxd" env:"EVALFLEET_SANDBOXD_ADDRESS"`
	// Agentorch is where agentorch is. gateway calls it.
	Agentorch string `yaml:"agentorch" env:"EVALFLEET_AGENTORCH_ADDRESS"`
}

// Address returns the address of a service; empty if it is not configured.
func (p Peers) Address(service string) string {
	return map[string]string{"modelgw": p.Modelgw, "toolexec": p.Toolexec, "sandboxd": p.Sandboxd, "agentorch": p.Agentorch}[service]
}

// exampleListen is how an address is written.
const exampleListen = "127.0.0.1:7460"

// DefaultReplica is the name of a replica that was given none.
const DefaultReplica = "local"

// Validate refuses an address that others can reach, unless it is allowed.
func (c *Config) Validate() error {
	if c.ReplicaTTL < 0 || c.ReplicaTTL > 0 && c.ReplicaTTL < 100*time.Millisecond {
		return errors.New("replica_ttl: want at least 100ms; 0 is the default")
	}
	if c.StopGrace < 0 {
		return errors.New("stop_grace: must not be negative; leave it out for the default")
	}
	if c.MaxConnections < 0 {
		return errors.New("max_connections: must not be negative; leave it out for the default")
	}
	if c.Listen == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return errors.New("listen: write host:port, such as " + exampleListen)
	}
	if !c.AllowRemote && !local(host) {
		return errors.New("listen: " + c.Listen + " can be reached from outside; set allow_remote: true if that is meant, or listen on " + exampleListen)
	}
	return nil
}

// local reports whether a host is this machine alone.
func local(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// WarnInClear logs a warning unless address is a loopback address: the token travels to it unencrypted.
func WarnInClear(address string, log *slog.Logger) {
	if host, _, err := net.SplitHostPort(address); err != nil || !local(host) {
		log.Warn("connections from other machines are not encrypted, and the token travels on them; put TLS in front (docs/deploy.md)", "address", address)
	}
}

// Alone returns the missing settings that p needs in a process of its own.
func (c *Config) Alone(p Program) error {
	var faults []error
	if c.DataDir == "" && !p.Stateless {
		faults = append(faults, errors.New("data_dir (EVALFLEET_DATA_DIR) is missing"))
	}
	if c.TokenFile == "" && c.Token.IsZero() {
		faults = append(faults, errors.New("token_file (EVALFLEET_TOKEN_FILE) is missing, and token (EVALFLEET_TOKEN) too; give one of them, the same to all services"))
	}
	return errors.Join(append(faults, c.RequirePeers(p))...)
}

// RequirePeers returns the services that p calls and whose addresses are missing.
func (c *Config) RequirePeers(p Program) error {
	var faults []error
	for _, peer := range p.Calls {
		if c.Peers.Address(peer) == "" {
			faults = append(faults, fmt.Errorf("peers.%s: %s calls it; set its address, or EVALFLEET_%s_ADDRESS", peer, p.Name, strings.ToUpper(peer)))
		}
	}
	return errors.Join(faults...)
}

// address is where p takes calls.
func (c *Config) address(p Program) string { return cmp.Or(c.Listen, p.Listen) }
