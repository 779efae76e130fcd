//! The layout inside a database, and its migration, which runs only when it is asked for. It owns every statement; it
//! must never change a record but through them.
//!
//! A store is a schema named by its namespace: the table `records`, the sequence `issues`, the functions below, and the
//! view `readable` for people. The table's comment says which layout it is.
//!
//! ## Locks
//! A key belongs to one of 256 stripes, each an advisory lock of the transaction. A batch takes those of all its keys,
//! in one order, shared for what it only looks at; then it takes the time; then it looks and changes, each statement on
//! a snapshot of its own moment. So a batch sees everything that was committed before its time, absent keys included,
//! and nothing that it looked at changes until it is committed. A stripe is held by strangers too, which costs waiting
//! and nothing else; a lock for each key would let one large batch exhaust the server's table of locks.
//!
//! That a record has ended is said only by whoever holds its stripe alone: others may have seen it live a moment before
//! and not be committed yet. `sweep` does that, and removes the record, so that the end is final wherever the clock
//! goes. What meets an ended record otherwise does nothing and says so.

use tokio_postgres::Client;

/// The layout that this program knows.
const LAYOUT: &str = "rehome store, layout 1";

/// What a schema holds.
pub(super) enum Layout {
    /// No table `records`.
    Nothing,
    /// This program's.
    Known,
    /// Something else: what its comment says.
    Other(String),
}

pub(super) async fn layout(client: &Client, schema: &str) -> Result<Layout, tokio_postgres::Error> {
    let table = format!("{schema}.records");
    let sql = "SELECT obj_description(to_regclass($1)::oid, 'pg_class'), to_regclass($1) IS NOT NULL";
    let row = client.query_one(sql, &[&table]).await?;
    let (comment, there): (Option<String>, bool) = (row.try_get(0)?, row.try_get(1)?);
    Ok(match comment {
        _ if !there => Layout::Nothing,
        Some(comment) if comment == LAYOUT => Layout::Known,
        comment => Layout::Other(comment.unwrap_or_else(|| String::from("a table without a comment"))),
    })
}

/// Makes the layout where there is none. One transaction; of several at once one makes it.
pub(super) async fn migrate(client: &mut Client, schema: &str) -> Result<Layout, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock(hashtextextended('rehome migration', 0))", &[]).await?;
    let found = layout(transaction.client(), schema).await?;
    if let Layout::Nothing = found {
        transaction.batch_execute(&MAKE.replace("STORE", schema).replace("LAYOUT", LAYOUT)).await?;
    }
    transaction.commit().await?;
    Ok(found)
}

const MAKE: &str = "
CREATE SCHEMA IF NOT EXISTS STORE;
CREATE TABLE STORE.records (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    version text NOT NULL,
    expires timestamptz
);
COMMENT ON TABLE STORE.records IS 'LAYOUT';
-- Records are compressed by nobody: they are small, and read more often than written.
ALTER TABLE STORE.records ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE INDEX records_ends ON STORE.records (expires) WHERE expires IS NOT NULL;
CREATE SEQUENCE STORE.issues;
CREATE VIEW STORE.readable AS
    SELECT replace(encode(key, 'escape'), '\\000', '/') AS key, encode(value, 'escape') AS value, version, expires
    FROM STORE.records ORDER BY records.key;

CREATE FUNCTION STORE.stripe(key bytea) RETURNS integer LANGUAGE sql IMMUTABLE
    AS $$ SELECT pg_catalog.get_byte(pg_catalog.sha256(key), 0) $$;

CREATE FUNCTION STORE.sweep(swept bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    space CONSTANT integer := 'STORE.records'::regclass::oid::bigint::bit(32)::integer;
    held integer;
BEGIN
    FOR held IN SELECT DISTINCT STORE.stripe(k) AS s FROM unnest(swept) k ORDER BY s LOOP
        PERFORM pg_advisory_xact_lock(space, held);
    END LOOP;
    DELETE FROM STORE.records WHERE key = ANY (swept) AND expires <= clock_timestamp();
END $$;

CREATE FUNCTION STORE.write(
    seen bytea[], kinds text[], at bytea[], gone bytea[], put bytea[], contents bytea[], micros bigint[],
    OUT outcome text, OUT versions text[]
) LANGUAGE plpgsql AS $$
DECLARE
    space CONSTANT integer := 'STORE.records'::regclass::oid::bigint::bit(32)::integer;
    held record;
    moment timestamptz;
    ended bigint;
    failed bigint;
    old bytea;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the snapshot must not be older than the locks';
    END IF;
    FOR held IN
        SELECT STORE.stripe(k) AS s, bool_or(alone) AS alone
        FROM (SELECT unnest(seen) AS k, false AS alone UNION ALL SELECT unnest(gone || put), true) AS all_keys
        GROUP BY 1 ORDER BY 1
    LOOP
        IF held.alone THEN
            PERFORM pg_advisory_xact_lock(space, held.s);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(space, held.s);
        END IF;
    END LOOP;
    moment := clock_timestamp();
    SELECT count(*) FILTER (WHERE r.expires <= moment),
        count(*) FILTER (WHERE NOT CASE c.kind
            WHEN 'missing' THEN r.key IS NULL
            WHEN 'present' THEN r.key IS NOT NULL
            ELSE coalesce(convert_to(r.version, 'UTF8') = c.version, false) END)
        INTO ended, failed
        FROM unnest(seen, kinds, at) AS c(key, kind, version) LEFT JOIN STORE.records r ON r.key = c.key;
    IF ended > 0 THEN
        outcome := 'ended';
        RETURN;
    END IF;
    IF failed > 0 THEN
        outcome := 'conflict';
        RETURN;
    END IF;
    outcome := 'applied';
    -- The time of issue stands in the version, so that a sequence that was set back issues none again.
    SELECT coalesce(array_agg(nextval('STORE.issues') || '-' || (extract(epoch FROM moment) * 1000000)::bigint), '{}')
        INTO versions FROM generate_series(1, cardinality(put));
    IF cardinality(gone) > 0 THEN
        DELETE FROM STORE.records WHERE key = ANY (gone);
    END IF;
    IF cardinality(put) > 0 THEN
        INSERT INTO STORE.records AS r (key, value, version, expires)
            SELECT p.key, p.value, p.version, moment + p.micros * interval '1 microsecond'
            FROM unnest(put, contents, versions, micros) AS p(key, value, version, micros)
            ON CONFLICT (key) DO UPDATE
            SET value = excluded.value, version = excluded.version, expires = excluded.expires;
    END IF;
    -- Cleans a little, where that needs no waiting.
    FOR old IN SELECT key FROM STORE.records WHERE expires <= moment ORDER BY expires LIMIT 4 LOOP
        IF pg_try_advisory_xact_lock(space, STORE.stripe(old)) THEN
            DELETE FROM STORE.records WHERE key = old AND expires <= moment;
        END IF;
    END LOOP;
END $$;
";

/// Microseconds that are left, by a clock that is read after the snapshot was taken.
const LEFT: &str = "(extract(epoch FROM expires - clock_timestamp()) * 1000000)::bigint";

/// `$1`: the key.
pub(super) fn read(schema: &str) -> String {
    format!("SELECT value, version, {LEFT} FROM {schema}.records WHERE key = $1")
}

/// `$1`: where it begins, `$2`: where it ends, `$3`: the most rows, `$4`: the most bytes. The last row may be one more
/// than fits.
pub(super) fn scan(schema: &str) -> String {
    format!(
        "SELECT key, value, version, {LEFT} FROM (
            SELECT key, value, version, expires,
                sum(octet_length(key) + octet_length(value)) OVER (ORDER BY key)
                    - octet_length(key) - octet_length(value) AS before
            FROM (SELECT * FROM {schema}.records WHERE key >= $1 AND ($2::bytea IS NULL OR key < $2)
                ORDER BY key LIMIT $3) AS page
        ) AS page WHERE before <= $4::bigint ORDER BY key"
    )
}

/// `$1` to `$7`: the arguments of `write`.
pub(super) fn write(schema: &str) -> String {
    format!("SELECT outcome, versions FROM {schema}.write($1, $2, $3, $4, $5, $6, $7)")
}

/// `$1`: keys.
pub(super) fn sweep(schema: &str) -> String {
    format!("SELECT {schema}.sweep($1)")
}
