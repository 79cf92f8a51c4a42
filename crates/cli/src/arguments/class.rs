//! Arguments of `plimsoll class`.

use super::OutputArguments;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `plimsoll class ...`.
#[derive(Debug, Subcommand)]
pub enum ClassCommand {
    /// List the schemes that are built in
    #[command(after_help = "Example:
  $ plimsoll class list
  scheme  classes  summary
  ext4         19  ext3 and ext4, as the paper has them")]
    List(OutputArguments),
    /// Show the classes of a built-in scheme or of a .toml file, or the mistakes in the file
    #[command(after_help = "Examples:
  $ plimsoll class show ext4
  $ plimsoll class show mine.toml

How to write one: docs/classes.md. Exit code 2 if it is wrong.")]
    Show(ClassShowArguments),
    /// Say the class of files on a volume that is mounted with tenants
    #[command(after_help = "Examples:
  $ plimsoll class say database-index /mnt/db/orders.index
  $ plimsoll class say 0 /mnt/db/orders.index        the file system's class counts again

The class holds for all blocks of the file until another is said, the file is deleted or the volume is unmounted. The
file's owner and root may say it. Programs say classes themselves with the libraries of docs/classes.md.")]
    Say(ClassSayArguments),
    /// Print the class that was said of files
    #[command(after_help = "Example:
  $ plimsoll class ask /mnt/db/orders.index
  number  class           file
      25  database-index  /mnt/db/orders.index")]
    Ask(ClassAskArguments),
}

/// Arguments of `plimsoll class show`.
#[derive(Debug, Args)]
pub struct ClassShowArguments {
    /// A scheme's name, or the path of a .toml file
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Where classes of files are said, and what they are called.
#[derive(Debug, Args)]
pub struct ClassServerArguments {
    /// The daemon's socket for classes [default: $PLIMSOLL_CLASSES, or /run/plimsoll/classes.sock]
    #[arg(long, value_name = "PATH")]
    pub at: Option<PathBuf>,
    /// The scheme that names the classes: a built-in one, or the path of a .toml file
    #[arg(long, value_name = "SCHEME", default_value = "postgresql-on-ext4")]
    pub classes: String,
}

/// Arguments of `plimsoll class say`.
#[derive(Debug, Args)]
pub struct ClassSayArguments {
    /// The class, by its name in the scheme or its number, 0 to 31
    pub class: String,
    /// The files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where to say it.
    #[command(flatten)]
    pub server: ClassServerArguments,
}

/// Arguments of `plimsoll class ask`.
#[derive(Debug, Args)]
pub struct ClassAskArguments {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where to ask.
    #[command(flatten)]
    pub server: ClassServerArguments,
}

/// `plimsoll classify ...`.
#[derive(Debug, Subcommand)]
pub enum ClassifyCommand {
    /// A PostgreSQL cluster: log, system tables, free-space maps, temporary files, random and sequential tables,
    /// indexes
    #[command(after_help = "Example:
  # sudo -u postgres plimsoll classify postgresql --data-directory /mnt/db/main
  log 3, system table 901, free-space map 210, temporary 0, random table 12, sequential table 2, index 9
  watching; Ctrl-C or SIGTERM ends it

The data directory is on a volume that is mounted with tenants. The names of most files tell their classes; psql asks the
catalogue for the rest (PGHOST, PGPORT, PGUSER count). New files are classified when they appear. Every 10 s the command
checks whether each table is read at random or in sequence. The classes hold after the command has ended. More:
docs/classes.md.")]
    Postgresql(PostgresqlArguments),
}

/// Arguments of `plimsoll classify postgresql`.
#[derive(Debug, Args)]
pub struct PostgresqlArguments {
    /// The cluster's data directory
    #[arg(long, value_name = "PATH")]
    pub data_directory: PathBuf,
    /// The program that asks the catalogue
    #[arg(long, value_name = "PATH", default_value = "psql")]
    pub psql: PathBuf,
    /// The directory of the server's socket, or its host [default: as of psql]
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// The server's port [default: as of psql]
    #[arg(long)]
    pub port: Option<u16>,
    /// The user to connect as [default: as of psql]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Use the names of files alone: users' tables and indexes then keep the file system's classes
    #[arg(long)]
    pub without_catalogue: bool,
    /// Classify the files that exist now, and end
    #[arg(long)]
    pub once: bool,
    /// The daemon's socket for classes [default: $PLIMSOLL_CLASSES, or /run/plimsoll/classes.sock]
    #[arg(long, value_name = "PATH")]
    pub at: Option<PathBuf>,
}
