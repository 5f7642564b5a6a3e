-- Run once by the database of docker-compose.yml: the account that binlogmq reads with, and a table to try it on.
CREATE USER 'binlogmq'@'%' IDENTIFIED BY 'binlogmq';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'binlogmq'@'%';
GRANT SELECT ON shop.* TO 'binlogmq'@'%';
CREATE DATABASE shop CHARACTER SET utf8mb4;
CREATE TABLE shop.customers (
  id INT AUTO_INCREMENT PRIMARY KEY,
  name VARCHAR(80) NOT NULL,
  email VARCHAR(120),
  created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)
);
INSERT INTO shop.customers (name, email) VALUES ('Grace', 'grace@example.com');
