package sqlite

// schema lists the steps, which are append-only; "effects" is replaced by the ledger's table in them and in all
// queries. Times are in nanoseconds since 1970; states are the numbers of effect.State.
var schema = []string{
	`
CREATE TABLE effects (
	seq        INTEGER PRIMARY KEY,
	project    TEXT    NOT NULL,
	id         TEXT    NOT NULL,
	hash       BLOB,             -- NULL: cancelled before it was claimed
	state      INTEGER NOT NULL,
	owner      TEXT    NOT NULL,
	reissues   INTEGER NOT NULL DEFAULT 0,
	claimed_at INTEGER NOT NULL,
	changed_at INTEGER NOT NULL,
	UNIQUE (project, id)
);
CREATE TABLE effects_body (
	seq  INTEGER PRIMARY KEY,    -- of the effect
	body BLOB    NOT NULL
);`,
	`ALTER TABLE effects ADD COLUMN yields INTEGER NOT NULL DEFAULT 0;`,
	`
CREATE TABLE effects_epoch (
	project TEXT    NOT NULL,
	run     TEXT    NOT NULL,
	epoch   INTEGER NOT NULL,    -- the newest that came with a claim
	since   INTEGER NOT NULL,
	UNIQUE (project, run)
);
CREATE INDEX effects_epoch_since ON effects_epoch (since);`,
	`ALTER TABLE effects_epoch ADD COLUMN released INTEGER NOT NULL DEFAULT 0;`,
	// The body's place, so that bodies are appended in the order in which effects end.
	`
ALTER TABLE effects ADD COLUMN body INTEGER;
UPDATE effects SET body = seq WHERE seq IN (SELECT seq FROM effects_body);
ALTER TABLE effects_body RENAME COLUMN seq TO id;`,
}

// queries are the statements of one ledger.
type queries struct {
	insert, own, leave, finish, yield, enter, insertBody, find string
	releaseBody, release, open                                 string
	cancelRun, ofRun, deleteBody, delete, endRun               string
	epoch, raise, expireEpochs                                 string
	page, expire, expireBodies                                 string
}

func queriesIn(table func(string) string) queries {
	const columns = "SELECT project, id, hash, state, owner, reissues, yields, claimed_at, changed_at"
	return queries{
		insert: table(`INSERT INTO effects (project, id, hash, state, owner, claimed_at, changed_at)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6) ON CONFLICT DO NOTHING`),
		own: table(`UPDATE effects SET state = 1, owner = ?3, reissues = ?4, changed_at = ?5
			WHERE project = ?1 AND id = ?2`),
		leave: table(`UPDATE effects SET state = ?4, changed_at = ?5
			WHERE project = ?1 AND id = ?2 AND owner = ?3 AND state = 1`),
		// The place is the one that insertBody takes next.
		finish: table(`UPDATE effects SET state = ?4, changed_at = ?5, body = (SELECT coalesce(max(id), 0) + 1 FROM effects_body)
			WHERE project = ?1 AND id = ?2 AND owner = ?3 AND state = 1`),
		yield: table(`UPDATE effects SET state = 8, yields = yields + 1, changed_at = ?4
			WHERE project = ?1 AND id = ?2 AND owner = ?3 AND state = 1`),
		enter: table(`UPDATE effects SET state = ?3, changed_at = ?4
			WHERE project = ?1 AND id = ?2`),
		insertBody: table(`INSERT INTO effects_body (body) VALUES (?1)`),
		find: table(columns + `, (SELECT b.body FROM effects_body b WHERE b.id = effects.body) FROM effects
			WHERE project = ?1 AND id = ?2`),

		// BETWEEN, since SQLite makes a table in memory of a list of three for each execution.
		releaseBody: table(`DELETE FROM effects_body
			WHERE id = (SELECT body FROM effects WHERE project = ?1 AND id = ?2 AND state BETWEEN 3 AND 5)`),
		release: table(`UPDATE effects SET state = 7, changed_at = ?3, body = NULL
			WHERE project = ?1 AND id = ?2 AND state BETWEEN 3 AND 5`),
		// "0" follows "/", so these are the ids that begin with the run's and a slash.
		cancelRun: table(`UPDATE effects SET state = 6, changed_at = ?3
			WHERE project = ?1 AND id >= ?2 || '/' AND id < ?2 || '0' AND state = 1`),
		ofRun: table(`SELECT seq, id FROM effects
			WHERE project = ?1 AND id >= ?2 || '/' AND id < ?2 || '0' AND state <> 6`),
		deleteBody: table(`DELETE FROM effects_body WHERE id =
			(SELECT body FROM effects WHERE seq = ?1 AND project = ?2 AND id = ?3 AND state NOT IN (1, 6))`),
		delete: table(`DELETE FROM effects WHERE seq = ?1 AND project = ?2 AND id = ?3 AND state NOT IN (1, 6)`),
		endRun: table(`UPDATE effects_epoch SET released = 1, since = ?3 WHERE project = ?1 AND run = ?2`),
		open: table(columns + `, NULL FROM effects
			WHERE state = 1 AND (?1 = '' OR owner = ?1) ORDER BY seq`),

		epoch: table(`SELECT coalesce(max(epoch), 0), coalesce(max(released), 0) FROM effects_epoch WHERE project = ?1 AND run = ?2`),
		raise: table(`INSERT INTO effects_epoch (project, run, epoch, since) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT DO UPDATE SET epoch = ?3, since = ?4`),
		expireEpochs: table(`DELETE FROM effects_epoch WHERE rowid IN
			(SELECT rowid FROM effects_epoch WHERE since < ?1 ORDER BY since LIMIT ?2)`),

		page: table(`SELECT coalesce(max(seq), 0), count(*),
				count(*) FILTER (WHERE state IN (2, 3, 4, 5, 6, 8) AND changed_at < ?4 OR state = 7 AND changed_at < ?5) FROM
			(SELECT * FROM effects WHERE seq > ?1 ORDER BY seq LIMIT ?2) WHERE claimed_at < ?3`),
		expire: table(`DELETE FROM effects WHERE seq > ?1 AND seq <= ?2
			AND (state IN (2, 3, 4, 5, 6, 8) AND changed_at < ?3 OR state = 7 AND changed_at < ?4)`),
		expireBodies: table(`DELETE FROM effects_body WHERE id IN (SELECT body FROM effects WHERE seq > ?1 AND seq <= ?2
			AND (state IN (2, 3, 4, 5, 6, 8) AND changed_at < ?3 OR state = 7 AND changed_at < ?4))`),
	}
}
